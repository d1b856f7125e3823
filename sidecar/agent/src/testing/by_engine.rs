//! An engine that codes its KV by itself, with the library of C that such an engine loads.
#![expect(unsafe_code, reason = "pointers of C")]

use std::ffi::{CStr, CString};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::ptr::{null, null_mut, with_exposed_provenance_mut};

use lynx_c::{
    ABI, Coder, Segment, Shape, Unit, Values, lynx_bounds, lynx_close, lynx_last_error, lynx_merge,
    lynx_open, lynx_read, lynx_register, lynx_restore, lynx_split, lynx_write,
};
use lynx_cuda::{bf16_of_fp16, fp16_of_bf16};
use lynx_kernels::{Blocks, Kind};
use lynx_proto::engine::v1::{
    Attach, Coded, Form, Merge, Role, Segment as Told, Split, Staging, Unit as Asked, from_agent,
};
use memmap2::{MmapOptions, MmapRaw};

use super::gpu::{By, Kv, OnGpu, PAGE, SHAPE, element, elements, parts};
use super::{attach, driver};

/// Elements of a page: `[token][head][channel]`.
const PAGE_ELEMENTS: usize = PAGE as usize * TOKEN_ELEMENTS;
const TOKEN_ELEMENTS: usize = 2 * 64;

/// Where its values are.
enum Kept {
    /// `[layer][K, V][page]`.
    Host(Vec<u16>),
    Gpu(Box<OnGpu>),
}

/// The engine.
pub(crate) struct ByItself {
    kept: Kept,
    pages: u32,
    file: String,
    is_half: bool,
    map: MmapRaw,
    coder: *mut Coder,
}

// SAFETY: a coder is used by one thread at a time, and may be by any.
unsafe impl Send for ByItself {}

impl ByItself {
    /// With values in host memory, and a staging file of so many bytes.
    pub(crate) fn on_host(directory: &Path, file: &str, bytes: u64) -> Self {
        let pages = 41;
        let values = vec![0; SHAPE.layers * 2 * pages as usize * PAGE_ELEMENTS];
        Self::new(Kept::Host(values), pages, (directory, file), bytes)
    }

    /// With values in a GPU's memory that no agent sees.
    pub(crate) fn on_gpu(directory: &Path, file: &str, bytes: u64) -> Self {
        let kept = Kept::Gpu(Box::new(OnGpu::new(By::Ipc, 41)));
        Self::new(kept, 41, (directory, file), bytes)
    }

    fn new(kept: Kept, pages: u32, (directory, name): (&Path, &str), bytes: u64) -> Self {
        let mut options = OpenOptions::new();
        options.create_new(true).read(true).write(true);
        let file = options.open(directory.join(name)).unwrap();
        file.set_len(bytes).unwrap();
        // All of it allocated.
        file.write_all_at(&vec![0; usize::try_from(bytes).unwrap()], 0)
            .unwrap();
        Self {
            kept,
            pages,
            file: name.to_owned(),
            is_half: false,
            map: MmapOptions::new().map_raw(&file).unwrap(),
            coder: null_mut(),
        }
    }

    /// With FP16, in host memory.
    pub(crate) fn use_fp16(&mut self) {
        self.is_half = true;
    }

    pub(crate) fn is_half(&self) -> bool {
        self.is_half
    }

    /// What it says of itself.
    pub(crate) fn attach(&self, role: Role) -> Attach {
        let mut attach = attach(role, self.pages);
        let layout = attach.layout.as_mut().unwrap();
        layout.block_tokens = PAGE;
        layout.element = element(self.is_half);
        // Its own affair.
        (layout.block_stride, layout.layer_stride) = (0, 0);
        let pool = attach.pool.as_mut().unwrap();
        pool.file.clear();
        pool.staging = Some(Staging {
            file: self.file.clone(),
            bytes: self.map.len() as u64,
        });
        attach
    }

    /// What it does when it is asked something.
    pub(crate) fn answer(&mut self, kind: &from_agent::Kind) -> Option<Coded> {
        let coded = match kind {
            from_agent::Kind::CodeWith(with) => {
                self.open(&with.profile);
                return None;
            }
            from_agent::Kind::Split(split) => (split.job, self.split(split)),
            from_agent::Kind::Merge(merge) => (merge.job, self.merge(merge)),
            other => panic!("{other:?} is no question about a unit"),
        };
        let (job, done) = coded;
        let (segments, error) = match done {
            Ok(segments) => (segments, String::new()),
            Err(error) => (Vec::new(), error),
        };
        Some(Coded {
            job,
            segments,
            error,
        })
    }

    fn open(&mut self, profile: &str) {
        let profile = CString::new(profile).unwrap();
        let shape = Shape {
            layers: u32::try_from(SHAPE.layers).unwrap(),
            kv_heads: u32::try_from(SHAPE.kv_heads).unwrap(),
            head_dim: u32::try_from(SHAPE.head_dim).unwrap(),
        };
        let (gpu, kernels) = match &self.kept {
            Kept::Host(_) => (0, None),
            Kept::Gpu(_) => (
                1,
                driver::kernels()
                    .to_str()
                    .map(|it| CString::new(it).unwrap()),
            ),
        };
        let kernels = kernels.as_ref().map_or(null(), |it| it.as_ptr());
        // SAFETY: the texts end, and there is a place for the coder.
        let code = unsafe {
            let coder = &raw mut self.coder;
            lynx_open(ABI, shape, profile.as_ptr(), gpu, 16 << 20, kernels, coder)
        };
        told(code).unwrap();
        if matches!(self.kept, Kept::Gpu(_)) {
            let bytes = self.map.len() as u64;
            // SAFETY: the file stays mapped until the coder is closed.
            told(unsafe { lynx_register(self.coder, self.map.as_mut_ptr(), bytes) }).unwrap();
        }
    }

    fn values(&mut self, asked: &Asked) -> Values {
        let (layer, kind) = (asked.layer as usize, kind_of(asked.is_v));
        let (memory, base) = match &mut self.kept {
            Kept::Host(values) => (0, values[start_of(layer, kind, self.pages)..].as_mut_ptr()),
            Kept::Gpu(gpu) => {
                let address = usize::try_from(gpu.base(layer, kind)).unwrap();
                (1, with_exposed_provenance_mut(address))
            }
        };
        Values {
            memory,
            page_tokens: PAGE,
            base,
            page_stride: PAGE_ELEMENTS as u64,
            token_stride: u32::try_from(TOKEN_ELEMENTS).unwrap(),
            head_stride: u32::try_from(SHAPE.head_dim).unwrap(),
            table: asked.blocks.as_ptr(),
            pages: u32::try_from(asked.blocks.len()).unwrap(),
            element: self.is_half.into(),
        }
    }

    fn place(&self, offset: u64) -> *mut u8 {
        let offset = usize::try_from(offset).unwrap();
        assert!(offset < self.map.len());
        self.map.as_mut_ptr().wrapping_add(offset)
    }

    fn split(&mut self, split: &Split) -> Result<Vec<Told>, String> {
        let asked = split.unit.as_ref().unwrap();
        let (unit, values) = (unit(asked), self.values(asked));
        let to = self.place(split.offset);
        if split.form() == Form::Values {
            // SAFETY: the bytes are this engine's until it answers, and the values are there.
            let code = unsafe { lynx_read(self.coder, &unit, &values, to, split.capacity) };
            told(code)?;
            let values = u64::from(unit.end_token - unit.first_token) * TOKEN_ELEMENTS as u64;
            return Ok(vec![Told {
                offset: split.offset,
                bytes: values * 2,
                checksum: 0,
            }]);
        }
        let (mut count, mut bytes) = (0, 0);
        // SAFETY: places for two numbers.
        told(unsafe { lynx_bounds(self.coder, &unit, &mut count, &mut bytes) })?;
        let mut segments = vec![Segment::default(); count as usize - usize::from(!split.tail)];
        let count = u32::try_from(segments.len()).unwrap();
        let told_of = segments.as_mut_ptr();
        let capacity = split.capacity;
        // SAFETY: as above.
        let code = unsafe { lynx_split(self.coder, &unit, &values, to, capacity, told_of, count) };
        told(code)?;
        let each = segments.iter().map(|segment| Told {
            offset: split.offset + segment.offset,
            bytes: segment.bytes,
            checksum: segment.checksum,
        });
        Ok(each.collect())
    }

    fn merge(&mut self, merge: &Merge) -> Result<Vec<Told>, String> {
        let asked = merge.unit.as_ref().unwrap();
        let (unit, values) = (unit(asked), self.values(asked));
        let (from, length) = (self.place(0), self.map.len() as u64);
        if merge.form() == Form::Values {
            let Told { offset, bytes, .. } = merge.segments[0];
            // SAFETY: the bytes are this engine's until it answers, and so are the blocks.
            let code = unsafe { lynx_write(self.coder, &unit, self.place(offset), bytes, &values) };
            return told(code).map(|()| Vec::new());
        }
        let segments: Vec<_> = merge.segments.iter().map(segment).collect();
        let (count, segments) = (u32::try_from(segments.len()).unwrap(), segments.as_ptr());
        let coder = self.coder;
        let code = match merge.steps {
            // SAFETY: as above.
            0 => unsafe { lynx_restore(coder, &unit, from, length, segments, count, &values) },
            // SAFETY: as above.
            steps => unsafe {
                lynx_merge(coder, &unit, from, length, segments, count, steps, &values)
            },
        };
        told(code).map(|()| Vec::new())
    }

    /// Computes a prompt.
    pub(crate) fn fill(&mut self, table: &[u32], kv: &Kv) {
        let pages = self.pages;
        let values = match &mut self.kept {
            Kept::Gpu(gpu) => return gpu.fill(table, kv),
            Kept::Host(values) => values,
        };
        for (layer, kind) in parts() {
            let blocks = kv.blocks(layer, kind);
            for element in elements(kv.tokens()) {
                let index = blocks.index(element.0, element.1, element.2);
                let bits = blocks.data()[index];
                let bits = if self.is_half {
                    fp16_of_bf16(bits)
                } else {
                    bits
                };
                values[start_of(layer, kind, pages) + at(table, element)] = bits;
            }
        }
    }

    /// What is in these pages.
    pub(crate) fn read(&mut self, table: &[u32], tokens: u32) -> Kv {
        let values = match &mut self.kept {
            Kept::Gpu(gpu) => return gpu.read(table, tokens),
            Kept::Host(values) => values,
        };
        let mut kv = Kv::new(tokens);
        for (layer, kind) in parts() {
            let mut blocks = Blocks::new(SHAPE, kind, 0..tokens);
            for element in elements(tokens) {
                let index = blocks.index(element.0, element.1, element.2);
                let from = start_of(layer, kind, self.pages) + at(table, element);
                let bits = values[from];
                let bits = if self.is_half {
                    bf16_of_fp16(bits)
                } else {
                    bits
                };
                blocks.data_mut()[index] = bits;
            }
            kv.set(layer, kind, blocks);
        }
        kv
    }
}

impl Drop for ByItself {
    fn drop(&mut self) {
        // SAFETY: null, or opened once.
        unsafe { lynx_close(self.coder) };
    }
}

fn kind_of(is_v: bool) -> Kind {
    if is_v { Kind::V } else { Kind::K }
}

fn start_of(layer: usize, kind: Kind, pages: u32) -> usize {
    (layer * 2 + usize::from(kind == Kind::V)) * pages as usize * PAGE_ELEMENTS
}

fn at(table: &[u32], (position, head, channel): (u32, usize, usize)) -> usize {
    let (page, slot) = ((position / PAGE) as usize, (position % PAGE) as usize);
    let token = table[page] as usize * PAGE as usize + slot;
    token * TOKEN_ELEMENTS + head * SHAPE.head_dim + channel
}

fn unit(asked: &Asked) -> Unit {
    Unit {
        layer: asked.layer,
        kind: asked.is_v.into(),
        first_token: asked.first_token,
        end_token: asked.end_token,
        prompt_tokens: asked.prompt_tokens,
        anchor_k_eighths: asked.anchor_k_eighths,
        anchor_v_bits: asked.anchor_v_bits,
    }
}

fn segment(told: &Told) -> Segment {
    Segment {
        offset: told.offset,
        bytes: told.bytes,
        checksum: told.checksum,
    }
}

/// A code's text.
fn told(code: i32) -> Result<(), String> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: valid until this thread's next failure.
    let text = unsafe { CStr::from_ptr(lynx_last_error()) };
    Err(text.to_string_lossy().into_owned())
}
