//! A coder, as a caller holds it.

use lynx_cuda::{
    Cache, Choice, CodeError, Coder as _, GpuCoder, Options, Place, Processor, Segments, choose,
};
use lynx_kernels::{Blocks, Codec, Cuts, Kind, KvShape, Profile, RawTokens, UnitBuffer, UnitPlan};
use lynx_units::Width;

use crate::error::{Code, Failure};
use crate::values::{Values, rows};

/// Segments start at multiples of it.
const ALIGNMENT: usize = 16;

/// `lynx_unit`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// The layer.
    pub layer: u32,
    /// 0 for K, 1 for V.
    pub kind: u32,
    /// The first position.
    pub first_token: u32,
    /// The position after the last.
    pub end_token: u32,
    /// Of the whole prompt.
    pub prompt_tokens: u32,
    /// The anchor's K.
    pub anchor_k_eighths: u32,
    /// The anchor's V.
    pub anchor_v_bits: u32,
}

/// `lynx_segment`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Where it starts.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Its checksum.
    pub checksum: u64,
}

/// `lynx_coder`.
#[derive(Debug)]
pub struct Coder {
    shape: KvShape,
    profile: Profile,
    processor: Processor,
    gpu: Option<GpuCoder>,
}

impl Coder {
    pub(crate) fn open(
        shape: KvShape,
        profile: Option<&str>,
        pinned: Option<usize>,
        kernels: Option<&str>,
    ) -> Result<Self, Failure> {
        let profile = match profile {
            Some(json) => Profile::from_json(json).map_err(|error| invalid(&error))?,
            None => Profile::uniform(shape).map_err(|error| invalid(&error))?,
        };
        if profile.shape() != shape {
            return Err(Failure::new(
                Code::Invalid,
                "the profile is of a model of another shape",
            ));
        }
        let gpu = pinned.map(|budget| open_gpu(budget, kernels)).transpose()?;
        Ok(Self {
            shape,
            profile,
            processor: Processor(Codec::detect()),
            gpu,
        })
    }

    fn plan(&self, unit: &Unit) -> Result<UnitPlan, Failure> {
        let kind = match unit.kind {
            0 => Kind::K,
            1 => Kind::V,
            other => {
                return Err(Failure::new(
                    Code::Invalid,
                    format!("there is no kind {other}"),
                ));
            }
        };
        if unit.layer as usize >= self.shape.layers || unit.end_token > unit.prompt_tokens {
            return Err(Failure::new(
                Code::Invalid,
                "the model has no such layer, or the prompt no such tokens",
            ));
        }
        let k = u8::try_from(unit.anchor_k_eighths)
            .ok()
            .and_then(Width::from_eighths);
        let (Some(k), Ok(v)) = (k, u8::try_from(unit.anchor_v_bits)) else {
            return Err(Failure::new(
                Code::Invalid,
                "the anchor's width is out of range",
            ));
        };
        let cuts = Cuts::new(k, v).map_err(|error| invalid(&error))?;
        let raw = RawTokens::for_prompt(unit.prompt_tokens);
        let tokens = unit.first_token..unit.end_token;
        UnitPlan::new(self.shape, kind, tokens, raw, cuts).map_err(|error| invalid(&error))
    }

    /// # Safety
    /// The memory stays mapped until it is let go.
    pub(crate) unsafe fn register(&mut self, memory: *mut u8, bytes: usize) -> Result<(), Failure> {
        let gpu = self.gpu.as_mut().ok_or_else(no_gpu)?;
        // SAFETY: the caller vouches for it.
        unsafe { gpu.register(memory, bytes) }.map_err(|error| of_gpu(&error))
    }

    pub(crate) fn unregister(&mut self) {
        if let Some(gpu) = &mut self.gpu {
            gpu.unregister();
        }
    }

    pub(crate) fn bounds(&self, unit: &Unit) -> Result<(u32, u64), Failure> {
        let plan = self.plan(unit)?;
        let bounds =
            (0..plan.segments()).map(|it| plan.segment_bound(it).next_multiple_of(ALIGNMENT));
        let count = u32::try_from(plan.segments()).unwrap_or(u32::MAX);
        Ok((count, bounds.sum::<usize>() as u64))
    }

    /// # Safety
    /// The values are there, and nobody writes them.
    pub(crate) unsafe fn split(
        &mut self,
        unit: &Unit,
        values: &Values,
        to: &mut [u8],
        told: &mut [Segment],
    ) -> Result<(), Failure> {
        let plan = self.plan(unit)?;
        let with_tail = told.len() == plan.segments();
        if !with_tail && told.len() + 1 != plan.segments() {
            let said = format!(
                "the unit has {} segments, or one less without its tail, not {}",
                plan.segments(),
                told.len()
            );
            return Err(Failure::new(Code::Invalid, said));
        }
        let order = self.profile.layer(unit.layer as usize);
        // SAFETY: the caller vouches for the table.
        let table = unsafe { values.table(&plan) }?;
        if values.is_on_gpu()? {
            // SAFETY: the caller vouches for the values.
            let cache = unsafe { cache(values, table) }?;
            let gpu = self.gpu.as_mut().ok_or_else(no_gpu)?;
            let placed = gpu.split_into(&plan, order, &cache, with_tail, to);
            let placed = placed.map_err(|error| of_gpu(&error))?;
            for (told, placed) in told.iter_mut().zip(placed) {
                *told = Segment {
                    offset: placed.offset as u64,
                    bytes: placed.bytes as u64,
                    checksum: placed.sum,
                };
            }
            return Ok(());
        }
        let mut blocks = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
        // SAFETY: the caller vouches for the values.
        unsafe { values.read(&plan, &table, &mut blocks) }?;
        let Ok(made) = self.processor.split(&plan, order, &blocks, with_tail);
        put(&made, to, told)
    }

    /// The values as they are, `[token][head][channel]`.
    ///
    /// # Safety
    /// They are there, and nobody writes them.
    pub(crate) unsafe fn read(
        &mut self,
        unit: &Unit,
        values: &Values,
        to: &mut [u8],
    ) -> Result<(), Failure> {
        let plan = self.plan(unit)?;
        // SAFETY: the caller vouches for the table.
        let table = unsafe { values.table(&plan) }?;
        let blocks = if values.is_on_gpu()? {
            // SAFETY: the caller vouches for the values.
            let cache = unsafe { cache(values, table) }?;
            let gpu = self.gpu.as_mut().ok_or_else(no_gpu)?;
            gpu.read(&plan, &cache).map_err(|error| of_gpu(&error))?
        } else {
            let mut blocks = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
            // SAFETY: the caller vouches for the values.
            unsafe { values.read(&plan, &table, &mut blocks) }?;
            blocks
        };
        let to = to.get_mut(..plan.bf16_bytes()).ok_or_else(|| {
            let said = format!("the values take {} bytes", plan.bf16_bytes());
            Failure::new(Code::TooSmall, said)
        })?;
        for (at, to) in places(&plan, &blocks)
            .into_iter()
            .zip(to.as_chunks_mut::<2>().0)
        {
            *to = blocks.data()[at].to_ne_bytes();
        }
        Ok(())
    }

    /// Replaces them.
    ///
    /// # Safety
    /// They are there, and nobody uses them.
    pub(crate) unsafe fn write(
        &mut self,
        unit: &Unit,
        from: &[u8],
        values: &Values,
    ) -> Result<(), Failure> {
        let plan = self.plan(unit)?;
        // SAFETY: the caller vouches for the table.
        let table = unsafe { values.table(&plan) }?;
        if from.len() != plan.bf16_bytes() {
            let said = format!(
                "the values take {} bytes, not {}",
                plan.bf16_bytes(),
                from.len()
            );
            return Err(Failure::new(Code::Invalid, said));
        }
        let mut blocks = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
        for (at, bits) in places(&plan, &blocks)
            .into_iter()
            .zip(from.as_chunks::<2>().0)
        {
            blocks.data_mut()[at] = u16::from_ne_bytes(*bits);
        }
        if values.is_on_gpu()? {
            // SAFETY: the caller vouches for the values.
            let mut cache = unsafe { cache(values, table) }?;
            let gpu = self.gpu.as_mut().ok_or_else(no_gpu)?;
            let written = gpu.write(&plan, &mut cache, &blocks);
            return written.map_err(|error| of_gpu(&error));
        }
        // SAFETY: the caller vouches for the values.
        unsafe { values.write(&plan, &table, &blocks) }
    }

    /// Merges so many steps, or restores.
    ///
    /// # Safety
    /// The values are there, and nobody uses them.
    pub(crate) unsafe fn decode(
        &mut self,
        unit: &Unit,
        (from, told): (&[u8], &[Segment]),
        values: &Values,
        steps: Option<u32>,
    ) -> Result<(), Failure> {
        let plan = self.plan(unit)?;
        let order = self.profile.layer(unit.layer as usize);
        // SAFETY: the caller vouches for the table.
        let table = unsafe { values.table(&plan) }?;
        let read = match steps.map(|steps| steps as usize) {
            None => plan.segments(),
            Some(steps) if (1..=plan.steps()).contains(&steps) => steps + 1,
            Some(steps) => {
                let said = format!(
                    "{steps} steps can't be merged: the unit has {}",
                    plan.steps()
                );
                return Err(Failure::new(Code::Invalid, said));
            }
        };
        let told = told.get(..read).ok_or_else(|| {
            Failure::new(
                Code::Invalid,
                "not all segments that are to be read are there",
            )
        })?;
        let segments = gather(&plan, from, told)?;
        let (steps, restores) = (read - 1, steps.is_none());
        if values.is_on_gpu()? {
            // SAFETY: the caller vouches for the values.
            let mut cache = unsafe { cache(values, table) }?;
            let gpu = self.gpu.as_mut().ok_or_else(no_gpu)?;
            let done = if restores {
                gpu.restore(&plan, order, &segments, &mut cache)
            } else {
                gpu.merge(&plan, order, (&segments, steps), &mut cache)
            };
            return done.map_err(|error| of_gpu(&error));
        }
        let mut blocks = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
        let done = if restores {
            self.processor.restore(&plan, order, &segments, &mut blocks)
        } else {
            self.processor
                .merge(&plan, order, (&segments, steps), &mut blocks)
        };
        done.map_err(|error| Failure::of(Code::Damaged, &error))?;
        // SAFETY: the caller vouches for the values.
        unsafe { values.write(&plan, &table, &blocks) }
    }
}

fn open_gpu(budget: usize, kernels: Option<&str>) -> Result<GpuCoder, Failure> {
    let mut options = Options::default();
    if let Some(kernels) = kernels {
        options.kernels = kernels.into();
    }
    match choose(&options) {
        Choice::Gpu(device, images) => GpuCoder::new(&device, images, budget)
            .map_err(|error| Failure::of(Code::Device, &error)),
        Choice::Processor(why) => Err(Failure::of(Code::Device, &why)),
    }
}

/// # Safety
/// The values are there as long as what is returned.
unsafe fn cache(values: &Values, table: Vec<u32>) -> Result<Cache, Failure> {
    let place = Place {
        pages: values.layout(),
        table,
        half: values.is_half()?,
    };
    // SAFETY: the caller vouches for it.
    Ok(unsafe { Cache::new(values.base.expose_provenance() as u64, place) })
}

/// Puts segments into the caller's memory, and says where they are.
fn put(made: &Segments, to: &mut [u8], told: &mut [Segment]) -> Result<(), Failure> {
    let mut at = 0;
    for ((index, told), checksum) in told.iter_mut().enumerate().zip(&made.sums) {
        let bytes = made.unit.segment(index).unwrap_or_default();
        let end = at + bytes.len();
        let place = to.get_mut(at..end).ok_or_else(|| {
            Failure::new(
                Code::TooSmall,
                "the segments don't fit: lynx_bounds says how much they need at most",
            )
        })?;
        place.copy_from_slice(bytes);
        *told = Segment {
            offset: at as u64,
            bytes: bytes.len() as u64,
            checksum: *checksum,
        };
        at = end.next_multiple_of(ALIGNMENT);
    }
    Ok(())
}

fn gather(plan: &UnitPlan, from: &[u8], told: &[Segment]) -> Result<Segments, Failure> {
    let piece = |it: &Segment| {
        let start = usize::try_from(it.offset).ok()?;
        let end = start.checked_add(usize::try_from(it.bytes).ok()?)?;
        from.get(start..end).map(<[u8]>::to_vec)
    };
    let pieces: Option<Vec<_>> = told.iter().map(piece).collect();
    let beyond = || Failure::new(Code::Invalid, "a segment lies beyond the end of the memory");
    let mut pieces = pieces.ok_or_else(beyond)?.into_iter();
    let unit = UnitBuffer {
        head: pieces.next().unwrap_or_default(),
        steps: pieces.by_ref().take(plan.steps()).collect(),
        tail: pieces.next().unwrap_or_default(),
    };
    let sums = told.iter().map(|it| it.checksum).collect();
    Ok(Segments { unit, sums })
}

/// Where the values are in blocks, in their order for callers.
fn places(plan: &UnitPlan, blocks: &Blocks) -> Vec<usize> {
    let of_row = |(position, head)| {
        (0..plan.shape().head_dim).map(move |channel| blocks.index(position, head, channel))
    };
    rows(plan).flat_map(of_row).collect()
}

fn no_gpu() -> Failure {
    Failure::new(Code::Device, "the coder was opened without a GPU")
}

fn invalid(error: &dyn std::error::Error) -> Failure {
    Failure::of(Code::Invalid, error)
}

fn of_gpu(error: &CodeError) -> Failure {
    let code = match error {
        CodeError::Launch(_) | CodeError::Length(_) => Code::Invalid,
        CodeError::TooSmall { .. } => Code::TooSmall,
        CodeError::Checksum(_) | CodeError::Refused(..) | CodeError::Unfit(_) => Code::Damaged,
        CodeError::Image(_) | CodeError::Driver(_) | CodeError::Staging(_) => Code::Device,
    };
    Failure::of(code, error)
}
