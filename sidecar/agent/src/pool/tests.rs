//! What a pool refuses, and where it looks.

use lynx_kernels::{BLOCK_TOKENS, Kind, TileSink as _, TileSource as _};
use lynx_proto::engine::v1;

use super::*;
use crate::testing::{attach, make_pool, open_pool};

/// A change, and what is said about it.
type Case = (fn(&mut v1::Layout), &'static str);

fn layout() -> v1::Layout {
    attach(v1::Role::Prefill, 1).layout.unwrap()
}

#[test]
fn tiles_lie_where_the_layout_says() {
    let directory = tempfile::tempdir().unwrap();
    let attach = attach(v1::Role::Prefill, 3);
    make_pool(directory.path(), &attach, 1);
    let bytes = std::fs::read(directory.path().join("pool")).unwrap();
    let pool = open_pool(directory.path(), &attach, Access::Read);
    let table = Readable::new(&pool, vec![2, 0], 100, 100).unwrap();
    for (kind, layer, head) in [(Kind::K, 0, 0), (Kind::K, 1, 1), (Kind::V, 1, 0)] {
        let source = table.source(layer, kind, 0..100).unwrap();
        for (block, id) in [(0, 2_usize), (1, 0)] {
            let rows = source.rows(head, block);
            let tile = BLOCK_TOKENS * 64 * 2;
            let v = if kind == Kind::V { tile } else { 0 };
            let start = id * 8 * tile + layer * 4 * tile + head * 2 * tile + v;
            let expected: Vec<u16> = bytes[start..start + tile]
                .as_chunks::<2>()
                .0
                .iter()
                .map(|pair| u16::from_ne_bytes(*pair))
                .collect();
            assert_eq!((rows.data, rows.stride), (&expected[..], 64));
        }
    }
}

#[test]
fn only_what_is_published_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let attach = attach(v1::Role::Prefill, 3);
    make_pool(directory.path(), &attach, 1);
    let pool = open_pool(directory.path(), &attach, Access::Read);
    let table = Readable::new(&pool, vec![2, 0], 100, 64).unwrap();
    assert!(table.source(1, Kind::K, 0..64).is_ok());
    assert!(table.source(1, Kind::K, 0..65).is_err());
    table.publish(1, 100);
    assert!(table.source(1, Kind::K, 0..100).is_ok());
    assert!(table.source(1, Kind::K, 0..101).is_err());
    assert!(table.source(0, Kind::K, 0..100).is_err());
    assert!(table.source(2, Kind::K, 0..1).is_err());
}

#[test]
fn only_granted_blocks_can_be_written_and_the_others_stay_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let attach = attach(v1::Role::Decode, 4);
    make_pool(directory.path(), &attach, 1);
    let before = std::fs::read(directory.path().join("pool")).unwrap();
    let pool = open_pool(directory.path(), &attach, Access::Write);
    let mut table = Writable::new(&pool, vec![0, 3, 1], 150, 64).unwrap();
    assert!(matches!(
        table.sink(0, Kind::V, 0..64),
        Err(AccessError::Nowhere { .. })
    ));
    let mut sink = table.sink(0, Kind::V, 64..150).unwrap();
    sink.rows_mut(1, 1).data.fill(0x1234);
    table.grant().set(false);
    assert_eq!(
        table.sink(0, Kind::V, 64..150).err(),
        Some(AccessError::NotGranted)
    );
    let after = std::fs::read(directory.path().join("pool")).unwrap();
    let tile = 64 * 64 * 2;
    let start = 3 * 8 * tile + 2 * tile + tile;
    assert!(
        after[start..start + tile]
            .iter()
            .all(|byte| [0x12, 0x34].contains(byte))
    );
    assert_eq!(after[..start], before[..start]);
    assert_eq!(after[start + tile..], before[start + tile..]);
}

#[test]
fn a_block_that_one_request_writes_is_no_other_requests() {
    let directory = tempfile::tempdir().unwrap();
    let attach = attach(v1::Role::Decode, 4);
    make_pool(directory.path(), &attach, 1);
    let pool = open_pool(directory.path(), &attach, Access::Write);
    let table = Writable::new(&pool, vec![0, 3], 128, 64).unwrap();
    let in_use = Some(TableError::InUse { block: 3 });
    assert_eq!(Writable::new(&pool, vec![1, 3], 128, 0).err(), in_use);
    assert_eq!(Readable::new(&pool, vec![3], 64, 0).err(), in_use);
    assert_eq!(
        Writable::new(&pool, vec![1, 1], 128, 0).err(),
        Some(TableError::Twice { block: 1 })
    );
    // Neither refusal has kept block 1; a shared prefix is nobody's here; and what is let go of is free.
    drop(Writable::new(&pool, vec![0, 1], 128, 64).unwrap());
    drop(table);
    let twice = Some(TableError::Twice { block: 3 });
    assert_eq!(Readable::new(&pool, vec![3, 3], 128, 0).err(), twice);
    let one = Readable::new(&pool, vec![2, 3], 128, 0).unwrap();
    let two = Readable::new(&pool, vec![3], 64, 0).unwrap();
    drop(one);
    assert_eq!(Writable::new(&pool, vec![3], 64, 0).err(), in_use);
    drop(two);
    assert!(Writable::new(&pool, vec![3], 64, 0).is_ok());
}

#[test]
fn tables_that_are_none_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let attach = attach(v1::Role::Decode, 4);
    make_pool(directory.path(), &attach, 1);
    let pool = open_pool(directory.path(), &attach, Access::Write);
    for (blocks, tokens, from_token) in [
        (vec![0], 65, 0),
        (vec![0, 1], 64, 0),
        (vec![], 0, 0),
        (vec![4], 1, 0),
        (vec![u32::MAX], 1, 0),
        (vec![0, 1], 128, 63),
        (vec![0, 1], 128, 128),
        (vec![0, 1], u32::MAX, 0),
    ] {
        let refused = Writable::new(&pool, blocks.clone(), tokens, from_token);
        assert!(refused.is_err(), "{blocks:?} {tokens} {from_token}");
    }
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let refused = |change: fn(&mut v1::Layout)| {
        let mut layout = layout();
        change(&mut layout);
        Layout::parse(&layout).unwrap_err().to_string()
    };
    let cases: [Case; 11] = [
        (
            |l| l.element = v1::ElementType::Fp16.into(),
            "ELEMENT_TYPE_FP16 are not supported here",
        ),
        (|l| l.block_tokens = 16, "blocks of 16 tokens"),
        (|l| l.head_dim = 63, "63 channels"),
        (
            |l| l.k_order = v1::Order::TokenChannel.into(),
            "K in the order ORDER_TOKEN_CHANNEL",
        ),
        (|l| l.v_order = 77, "V in the order ORDER_UNSPECIFIED"),
        (|l| l.element = 0, "ELEMENT_TYPE_UNSPECIFIED"),
        (
            |l| l.rotary = v1::Rotary::Interleaved.into(),
            "ROTARY_INTERLEAVED",
        ),
        (
            |l| l.tensor_parallel_size = 2,
            "tensor parallelism of 2 (rank 0)",
        ),
        (|l| l.head_stride -= 2, "the head stride of 16382 bytes"),
        (|l| l.v_offset = 0, "the offset of V of 0 bytes"),
        (|l| l.layer_stride += 1, "is not a whole number"),
    ];
    for (change, expected) in cases {
        let message = refused(change);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn strides_in_any_order_are_good_as_long_as_nothing_overlaps() {
    let tile = 64 * 64 * 2;
    // All K of all blocks, then all V; heads outside of layers.
    let apart = v1::Layout {
        block_stride: tile,
        layer_stride: 5 * tile,
        head_stride: 2 * 5 * tile,
        v_offset: 4 * 5 * tile,
        ..layout()
    };
    let layout = Layout::parse(&apart).unwrap();
    assert_eq!(layout.bytes(5).unwrap() as u64, 8 * 5 * tile);
    assert!(layout.bytes(6).is_err());
    let vast = v1::Layout {
        block_stride: 1 << 62,
        ..apart
    };
    assert!(Layout::parse(&vast).unwrap().bytes(1000).is_err());
}

#[test]
fn a_pool_that_is_cut_short_is_an_error_and_ends_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let attach = attach(v1::Role::Decode, 4);
    make_pool(directory.path(), &attach, 1);
    let pool = open_pool(directory.path(), &attach, Access::Write);
    let read = Readable::new(&pool, vec![3], 64, 64).unwrap();
    let mut written = Writable::new(&pool, vec![0], 64, 0).unwrap();
    let file = directory.path().join("pool");
    let cut = |len| {
        std::fs::File::options()
            .write(true)
            .open(&file)?
            .set_len(len)
    };
    cut(4096).unwrap();
    let source = read.source(1, Kind::V, 0..64).unwrap();
    assert!(source.rows(1, 0).data.iter().all(|value| *value == 0));
    assert_eq!(read.intact(), Err(AccessError::Lost(Lost::Pages)));
    assert_eq!(written.intact(), Err(AccessError::Lost(Lost::Pages)));
    assert!(written.sink(0, Kind::K, 0..64).is_err());
    assert!(read.source(1, Kind::V, 0..64).is_err());
    // One that grows again is another's then; one that only grows stays as good as it was.
    make_pool(directory.path(), &attach, 1);
    let pool = open_pool(directory.path(), &attach, Access::Read);
    let again = Readable::new(&pool, vec![3], 64, 64).unwrap();
    cut(1 << 30).unwrap();
    let source = again.source(1, Kind::V, 0..64).unwrap();
    assert!(source.rows(1, 0).data.iter().any(|value| *value != 0));
    assert_eq!((again.intact(), read.intact().is_err()), (Ok(()), true));
}

#[test]
fn nothing_but_a_file_of_memory_is_mapped() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    rustix::fs::mknodat(
        CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(directory.path().join("socket")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", directory.path().join("link")).unwrap();
    let layout = Layout::parse(&layout()).unwrap();
    let shared = directory.path().to_str().unwrap();
    for (directory, name) in [
        (shared, "fifo"),
        (shared, "socket"),
        (shared, "link"),
        ("/dev", "zero"),
        ("/dev", "null"),
        ("/proc/self", "maps"),
        ("/proc/self", "mem"),
        ("/proc/self", "fd"),
        ("/proc/self", "exe"),
        ("/proc", "kcore"),
    ] {
        for access in [Access::Read, Access::Write] {
            let pool = v1::Pool {
                file: name.to_owned(),
                blocks: 3,
                gpu: None,
                staging: None,
            };
            let refused = Pool::open(Path::new(directory), &pool, layout, access);
            let why = refused.map(|_| ()).unwrap_err().to_string();
            assert!(why.contains(name), "{directory}/{name}: {why}");
        }
    }
}

#[test]
fn only_a_file_of_its_full_size_in_the_shared_directory_is_mapped() {
    let directory = tempfile::tempdir().unwrap();
    let attach = attach(v1::Role::Prefill, 3);
    make_pool(directory.path(), &attach, 1);
    let path = directory.path().join("pool");
    std::os::unix::fs::symlink(&path, directory.path().join("link")).unwrap();
    std::fs::create_dir(directory.path().join("inner")).unwrap();
    let layout = Layout::parse(&layout()).unwrap();
    let open = |file: &str, blocks| {
        let pool = v1::Pool {
            file: file.to_owned(),
            blocks,
            gpu: None,
            staging: None,
        };
        Pool::open(directory.path(), &pool, layout, Access::Read)
    };
    assert_eq!(open("pool", 3).unwrap().blocks(), 3);
    for name in ["", ".", "..", "../pool", "inner/pool", "a\0b"] {
        assert!(matches!(open(name, 3), Err(PoolError::Name(_))), "{name:?}");
    }
    for name in ["link", "missing"] {
        assert!(matches!(open(name, 3), Err(PoolError::Io { .. })), "{name}");
    }
    assert!(matches!(open("inner", 3), Err(PoolError::NoFile { .. })));
    assert!(matches!(open("pool", 0), Err(PoolError::Empty)));
    assert!(matches!(open("pool", 4), Err(PoolError::Short { .. })));
}
