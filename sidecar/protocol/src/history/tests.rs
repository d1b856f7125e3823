use alloc::vec::Vec;

use super::*;

#[test]
fn it_remembers_the_last_names_and_no_more() {
    let mut history = History::default();
    (0..5000).map(TransferId).for_each(|name| history.add(name));
    assert!(history.contains(TransferId(4999)));
    assert!(history.contains(TransferId(5000 - 4096)));
    assert!(!history.contains(TransferId(5000 - 4097)));
    assert_eq!(history.order.len(), history.names.len());
}

#[test]
fn any_names_are_remembered_as_a_plain_list_remembers_them() {
    bolero::check!()
        .with_type::<Vec<(u16, u16)>>()
        .for_each(|runs| {
            let mut history = History::default();
            let mut names: Vec<u64> = Vec::new();
            for &(first, count) in runs.iter().take(16) {
                for name in (u64::from(first)..).take(usize::from(count % 2000)) {
                    history.add(TransferId(name));
                    let remembered = &names[names.len().saturating_sub(REMEMBERED)..];
                    if !remembered.contains(&name) {
                        names.push(name);
                    }
                }
                let forgotten = names.len().saturating_sub(REMEMBERED);
                for probe in [first, first / 2, count].map(u64::from) {
                    let known = names[forgotten..].contains(&probe);
                    assert_eq!(history.contains(TransferId(probe)), known);
                }
                assert_eq!(history.order.len(), names.len() - forgotten);
                assert_eq!(history.names.len(), names.len() - forgotten);
            }
        });
}
