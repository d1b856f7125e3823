//! The compiler, where it is installed.

use std::ffi::{CStr, CString, c_char};
use std::ptr::null_mut;

use cudarc::nvrtc::sys;

/// Whether the compiler's library is there, with everything that is called.
pub(crate) fn is_present() -> bool {
    const SYMBOLS: [&str; 7] = [
        "nvrtcCreateProgram",
        "nvrtcCompileProgram",
        "nvrtcGetProgramLogSize",
        "nvrtcGetProgramLog",
        "nvrtcGetCUBINSize",
        "nvrtcGetCUBIN",
        "nvrtcDestroyProgram",
    ];
    // SAFETY: looks for a library, which has no initialisers to speak of.
    if !unsafe { sys::is_culib_present() } {
        return false;
    }
    // SAFETY: it is there, so that this doesn't panic.
    let library = unsafe { sys::culib() };
    let has = |name: &&str| {
        // SAFETY: only asked for, never called by this type.
        unsafe { library.get::<*const ()>(name.as_bytes()) }.is_ok()
    };
    SYMBOLS.iter().all(has)
}

struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made once.
        unsafe { sys::nvrtcDestroyProgram(&raw mut self.0) };
    }
}

/// Machine code for one GPU; otherwise what the compiler says. [`is_present`] is asked before.
pub(crate) fn compile(
    sources: &[(&str, &str)],
    defines: &[String],
    architecture: &str,
) -> Result<Vec<u8>, String> {
    let text = |text: &str| CString::new(text).map_err(|error| error.to_string());
    let (main, headers): (Vec<_>, Vec<_>) =
        sources.iter().partition(|(name, _)| name.ends_with(".cu"));
    let (name, source) = main.first().ok_or("there is no source")?;
    let (name, source) = (text(name)?, text(source)?);
    let names: Vec<_> = headers
        .iter()
        .map(|it| text(it.0))
        .collect::<Result<_, _>>()?;
    let texts: Vec<_> = headers
        .iter()
        .map(|it| text(it.1))
        .collect::<Result<_, _>>()?;
    let (name_pointers, text_pointers) = (pointers(&names), pointers(&texts));
    let count = i32::try_from(headers.len()).map_err(|error| error.to_string())?;
    let mut program = null_mut();
    // SAFETY: all texts end, and there are `count` headers.
    let code = unsafe {
        sys::nvrtcCreateProgram(
            &raw mut program,
            source.as_ptr(),
            name.as_ptr(),
            count,
            text_pointers.as_ptr(),
            name_pointers.as_ptr(),
        )
    };
    check(code)?;
    let program = Program(program);
    let mut options = vec![
        text("--std=c++17")?,
        text(&format!("--gpu-architecture={architecture}"))?,
    ];
    for define in defines {
        options.push(text(&format!("-D{define}"))?);
    }
    let option_pointers = pointers(&options);
    let count = i32::try_from(options.len()).map_err(|error| error.to_string())?;
    // SAFETY: the program is there, and `count` texts, which end.
    let code = unsafe { sys::nvrtcCompileProgram(program.0, count, option_pointers.as_ptr()) };
    if code != sys::nvrtcResult::NVRTC_SUCCESS {
        return Err(log(&program));
    }
    let mut size = 0;
    // SAFETY: writes one number.
    check(unsafe { sys::nvrtcGetCUBINSize(program.0, &raw mut size) })?;
    let mut cubin = vec![0u8; size];
    // SAFETY: so many bytes are written.
    check(unsafe { sys::nvrtcGetCUBIN(program.0, cubin.as_mut_ptr().cast()) })?;
    Ok(cubin)
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}

fn check(code: sys::nvrtcResult) -> Result<(), String> {
    if code == sys::nvrtcResult::NVRTC_SUCCESS {
        Ok(())
    } else {
        Err(format!("{code:?}"))
    }
}

fn log(program: &Program) -> String {
    let mut size = 0;
    // SAFETY: writes one number.
    if check(unsafe { sys::nvrtcGetProgramLogSize(program.0, &raw mut size) }).is_err() {
        return "nothing".to_owned();
    }
    let mut text = vec![0u8; size + 1];
    // SAFETY: so many bytes are written.
    if check(unsafe { sys::nvrtcGetProgramLog(program.0, text.as_mut_ptr().cast()) }).is_err() {
        return "nothing".to_owned();
    }
    let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
    text.to_string_lossy().into_owned()
}
