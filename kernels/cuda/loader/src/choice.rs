//! Whether units are coded on a GPU or on the processor, and why.

use core::fmt;
use std::path::PathBuf;

use crate::driver::{Device, DriverError, Module, Which, missing_symbol};
use crate::images::{DEFAULT_FOLDER, ImageError, Images};

/// What to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which of the GPUs that this process sees.
    pub device: Which,
    /// Where machine code lies that was built beforehand.
    pub kernels: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device: Which::Number(0),
            kernels: DEFAULT_FOLDER.into(),
        }
    }
}

/// Where units are coded. Its text is for logs and people.
#[derive(Debug)]
pub enum Choice {
    /// On this GPU, with these kernels.
    Gpu(Device, Images),
    /// On the processor.
    Processor(Why),
}

/// Why not on a GPU.
#[derive(Debug, thiserror::Error)]
pub enum Why {
    /// The library of the driver isn't there.
    #[error("there is no CUDA driver (libcuda.so.1) in this container")]
    NoDriver,
    /// The library lacks a function.
    #[error("the CUDA driver has no {0}: it must be of CUDA 12 or later")]
    OldDriver(&'static str),
    /// No GPU is visible.
    #[error("the CUDA driver shows this container no {0}")]
    NoDevice(Which),
    /// A GPU that lacks instructions that the kernels use.
    #[error("{name} is of compute capability {major}.{minor}, and the kernels need 8.0")]
    OldDevice {
        /// The GPU's name.
        name: String,
        /// Its capability.
        major: u32,
        /// And the rest of it.
        minor: u32,
    },
    /// A call has failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// No machine code for it.
    #[error("there are no kernels for the GPU")]
    Kernels(#[from] ImageError),
}

/// Looks for a GPU and for kernels that it takes. Never panics: what is missing is the reason for the processor.
pub fn choose(options: &Options) -> Choice {
    match find(options) {
        Ok((device, images)) => Choice::Gpu(device, images),
        Err(why) => Choice::Processor(why),
    }
}

fn find(options: &Options) -> Result<(Device, Images), Why> {
    match missing_symbol() {
        None => {}
        Some(None) => return Err(Why::NoDriver),
        Some(Some(symbol)) => return Err(Why::OldDriver(symbol)),
    }
    let device = Device::open(options.device)?.ok_or(Why::NoDevice(options.device))?;
    let (major, minor) = device.capability();
    if major < 8 {
        return Err(Why::OldDevice {
            name: device.name().to_owned(),
            major,
            minor,
        });
    }
    let images = Images::new(options.kernels.clone());
    // One build for all: where it loads, so do the others.
    Module::load(&device, &images.load("k128-whole", (major, minor))?)?;
    Ok((device, images))
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "GPU number {number}"),
            Self::Uuid(uuid) => write!(f, "{uuid}"),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(device, images) => {
                let (major, minor) = device.capability();
                write!(f, "on {} (sm_{major}{minor}), {images}", device.name())
            }
            Self::Processor(why) => {
                write!(f, "on the processor: {why}")?;
                let mut source = std::error::Error::source(why);
                while let Some(cause) = source {
                    write!(f, ": {cause}")?;
                    source = cause.source();
                }
                Ok(())
            }
        }
    }
}
