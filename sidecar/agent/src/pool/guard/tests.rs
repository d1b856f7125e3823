//! What a missing page does, and that only a guarded one is forgiven.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use super::super::mapping::Mapping;

/// Elements of a mapping: some pages.
const ELEMENTS: usize = 1 << 14;

/// A file, and its mapping.
fn mapped() -> (File, Mapping) {
    let file = tempfile::tempfile().unwrap();
    file.set_len(2 * ELEMENTS as u64).unwrap();
    let mapping = Mapping::new(&file, 2 * ELEMENTS, true).unwrap();
    (file, mapping)
}

fn first(mapping: &Mapping, at: usize) -> u16 {
    // SAFETY: nobody else has this file.
    let read = unsafe { mapping.read(at, 1) };
    read[0]
}

fn fill(mapping: &Mapping, value: u16) {
    // SAFETY: nobody else has this file.
    unsafe { mapping.write(0, ELEMENTS) }.fill(value);
}

#[test]
fn a_page_that_is_gone_reads_as_nothing_and_is_told_of() {
    let (file, mapping) = mapped();
    fill(&mapping, 7);
    file.set_len(4096).unwrap();
    assert_eq!(first(&mapping, 0), 7);
    assert!(!mapping.is_lost(), "what is touched is there");
    assert_eq!(first(&mapping, ELEMENTS - 1), 0);
    assert!(mapping.is_lost());
    fill(&mapping, 9);
    assert_eq!(first(&mapping, ELEMENTS - 1), 9);
    assert_eq!(
        file.metadata().unwrap().len(),
        4096,
        "not the engine's any more"
    );
}

#[test]
fn a_page_that_is_gone_can_be_written_to_and_others_mappings_stay() {
    let ((file, mapping), (_other_file, other)) = (mapped(), mapped());
    fill(&other, 5);
    file.set_len(0).unwrap();
    fill(&mapping, 7);
    assert!(mapping.is_lost() && !other.is_lost());
    assert_eq!(first(&other, ELEMENTS - 1), 5);
    // Its place is another's then, who starts anew.
    drop(mapping);
    let (_file, third) = mapped();
    assert!(!third.is_lost());
}

#[test]
fn threads_that_find_the_same_page_gone_all_go_on() {
    for _ in 0..50 {
        let (file, mapping) = mapped();
        file.set_len(0).unwrap();
        std::thread::scope(|scope| {
            for at in 0..4 {
                let mapping = &mapping;
                scope.spawn(move || assert_eq!(first(mapping, at * ELEMENTS / 4), 0));
            }
        });
        assert!(mapping.is_lost());
    }
}

/// Touches a missing page of a mapping that nobody guards.
#[test]
#[ignore = "needs a process of its own: it ends it"]
fn touch_what_nobody_guards() {
    drop(mapped());
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    let map = memmap2::MmapRaw::map_raw(&file).unwrap();
    file.set_len(0).unwrap();
    // SAFETY: the mapping has this byte, though the file has not.
    let byte = unsafe { map.as_ptr().read_volatile() };
    panic!("{byte} was there");
}

#[test]
fn a_missing_page_elsewhere_ends_the_process_as_ever() {
    let test = "pool::guard::tests::touch_what_nobody_guards";
    let mut child = Command::new(std::env::current_exe().unwrap());
    let ended = child.args(["--exact", test, "--ignored"]).output().unwrap();
    assert_eq!(ended.status.signal(), Some(libc::SIGBUS), "{ended:?}");
}
