use super::*;

const BYTES: usize = 256;

#[test]
fn any_spans_in_any_order_are_what_a_row_of_bytes_is() {
    bolero::check!()
        .with_type::<Vec<(u8, u8, u8)>>()
        .for_each(|ops| {
            let mut here = Intervals::default();
            let mut bytes = [false; BYTES];
            for &(op_start, op_end, clear) in ops {
                if clear == 0 {
                    here.clear();
                    bytes = [false; BYTES];
                }
                let (start, end) = (usize::from(op_start), usize::from(op_end));
                let span = bytes.get(start..end).unwrap_or(&[]);
                let expected = match span.iter().filter(|&&here| here).count() {
                    0 => Coverage::Nothing,
                    all if all == span.len() => Coverage::Everything,
                    _ => Coverage::Part,
                };
                if start > end {
                    continue;
                }
                let (from, until) = (u32::from(op_start), u32::from(op_end));
                assert_eq!(here.coverage(from, until), expected);
                if expected == Coverage::Nothing && start < end {
                    here.insert(from, until);
                    bytes[start..end].fill(true);
                }
                let count = bytes.iter().filter(|&&here| here).count();
                assert_eq!(here.bytes() as usize, count);
                let begins = |at: usize| bytes[at] && (at == 0 || !bytes[at - 1]);
                assert_eq!(here.spans(), (0..BYTES).filter(|&at| begins(at)).count());
            }
        });
}
