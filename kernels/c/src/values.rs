//! Values in pages of the caller's.

use lynx_cuda::{bf16_of_fp16, fp16_of_bf16};
use lynx_gpu::Pages;
use lynx_kernels::{Blocks, UnitPlan};

use crate::error::{Code, Failure};

/// `lynx_values`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Values {
    /// 0 for host memory, 1 for a GPU's.
    pub memory: u32,
    /// Tokens of a page.
    pub page_tokens: u32,
    /// Of page 0.
    pub base: *mut u16,
    /// From a page to the next.
    pub page_stride: u64,
    /// From a token to the next.
    pub token_stride: u32,
    /// From a head to the next.
    pub head_stride: u32,
    /// Numbers of pages.
    pub table: *const u32,
    /// How many there are.
    pub pages: u32,
    /// 0 for BF16, 1 for FP16.
    pub element: u32,
}

impl Values {
    pub(crate) fn is_on_gpu(&self) -> Result<bool, Failure> {
        match self.memory {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Failure::new(
                Code::Invalid,
                format!("there is no kind of memory {other}"),
            )),
        }
    }

    pub(crate) fn is_half(&self) -> Result<bool, Failure> {
        match self.element {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Failure::new(
                Code::Invalid,
                format!("there is no type of element {other}"),
            )),
        }
    }

    pub(crate) const fn layout(&self) -> Pages {
        Pages {
            tokens: self.page_tokens,
            page_stride: self.page_stride,
            token_stride: self.token_stride,
            head_stride: self.head_stride,
        }
    }

    /// The numbers of the pages, which are as many as the unit has.
    ///
    /// # Safety
    /// The table has as many numbers as it says.
    pub(crate) unsafe fn table(&self, plan: &UnitPlan) -> Result<Vec<u32>, Failure> {
        if !self.page_tokens.is_power_of_two() || !(16..=128).contains(&self.page_tokens) {
            let said = format!(
                "pages of {} tokens can't be: 16, 32, 64 or 128",
                self.page_tokens
            );
            return Err(Failure::new(Code::Invalid, said));
        }
        let tokens = plan.tokens().end - self.layout().start(plan.tokens().start);
        let needed = tokens.div_ceil(self.page_tokens);
        if self.base.is_null() || self.table.is_null() || self.pages != needed {
            let said = format!("the unit has {needed} pages, and the table {}", self.pages);
            return Err(Failure::new(Code::Invalid, said));
        }
        // SAFETY: the caller vouches for it.
        Ok(unsafe { std::slice::from_raw_parts(self.table, self.pages as usize) }.to_vec())
    }

    /// Reads host memory into blocks.
    ///
    /// # Safety
    /// The pages are there, and nobody writes them.
    pub(crate) unsafe fn read(
        &self,
        plan: &UnitPlan,
        table: &[u32],
        blocks: &mut Blocks,
    ) -> Result<(), Failure> {
        let is_half = self.is_half()?;
        for (position, head) in rows(plan) {
            let row = self.row(plan, table, position, head);
            for channel in 0..plan.shape().head_dim {
                let index = blocks.index(position, head, channel);
                // SAFETY: within a page, as the caller vouches.
                let bits = unsafe { row.wrapping_add(channel).read() };
                blocks.data_mut()[index] = if is_half { bf16_of_fp16(bits) } else { bits };
            }
        }
        Ok(())
    }

    /// Writes blocks to host memory.
    ///
    /// # Safety
    /// The pages are there, and nobody uses them.
    pub(crate) unsafe fn write(
        &self,
        plan: &UnitPlan,
        table: &[u32],
        blocks: &Blocks,
    ) -> Result<(), Failure> {
        let is_half = self.is_half()?;
        for (position, head) in rows(plan) {
            let row = self.row(plan, table, position, head);
            for channel in 0..plan.shape().head_dim {
                let bits = blocks.data()[blocks.index(position, head, channel)];
                let bits = if is_half { fp16_of_bf16(bits) } else { bits };
                // SAFETY: as above.
                unsafe { row.wrapping_add(channel).write(bits) };
            }
        }
        Ok(())
    }

    fn row(&self, plan: &UnitPlan, table: &[u32], position: u32, head: usize) -> *mut u16 {
        let after = position - self.layout().start(plan.tokens().start);
        let (page, slot) = (after / self.page_tokens, after % self.page_tokens);
        let page = table.get(page as usize).copied().unwrap_or(0);
        let offset = u64::from(page) * self.page_stride
            + u64::from(slot) * u64::from(self.token_stride)
            + head as u64 * u64::from(self.head_stride);
        self.base
            .wrapping_add(usize::try_from(offset).unwrap_or(usize::MAX))
    }
}

/// Positions and heads, in their order for callers.
pub(crate) fn rows(plan: &UnitPlan) -> impl Iterator<Item = (u32, usize)> {
    let heads = plan.shape().kv_heads;
    plan.tokens()
        .flat_map(move |position| (0..heads).map(move |head| (position, head)))
}
