//! What is taken from the files, what is refused, and with which words.

use std::time::Duration;

use super::*;
use crate::authority::{Authority, Request, Starts, write};
use crate::{CA_FILE, KEY_FILE};

const NAME: &str = "spiffe://test/ns/a/lynx/b";

fn opened(files: &Files) -> Result<Credentials, LoadError> {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), files).unwrap();
    Credentials::open(directory.path(), None, UnixTime::now())
}

fn refusal(files: &Files) -> String {
    opened(files).unwrap_err().to_string()
}

#[test]
fn a_good_set_has_a_name_and_an_end() {
    let authority = Authority::new().unwrap();
    let loaded = authority.credentials(NAME).unwrap().current();
    assert_eq!(loaded.identity().primary(), NAME);
    let left = loaded.not_after().as_secs() - UnixTime::now().as_secs();
    assert!((23 * 3600..=24 * 3600).contains(&left), "{left}");
}

#[test]
fn each_mistake_says_what_to_do() {
    let authority = Authority::new().unwrap();
    let other = Authority::new().unwrap();
    let request = Request::new(NAME);
    let good = authority.issue(&request).unwrap();
    let next = authority.issue(&request).unwrap();
    let strange = other.issue(&request).unwrap();
    let with = |change: &dyn Fn(&mut Files)| {
        let mut files = good.clone();
        change(&mut files);
        refusal(&files)
    };
    let expired = authority.issue(&request.clone().expired()).unwrap();
    let early = authority.issue(&Request {
        starts: Starts::In(Duration::from_secs(3600)),
        ..request.clone()
    });
    let for_servers = authority.issue(&Request {
        client: false,
        ..request.clone()
    });
    let nameless = authority.issue(&Request {
        names: Vec::new(),
        ..request.clone()
    });
    for (refused, words) in [
        (
            with(&|files| files.key.clone_from(&next.key)),
            "tls.key doesn't fit tls.crt",
        ),
        (
            with(&|files| files.ca.clone_from(&strange.ca)),
            "isn't signed by an authority in ca.crt",
        ),
        (
            with(&|files| files.chain.clear()),
            "tls.crt has no certificate in PEM",
        ),
        (
            with(&|files| files.key = b"hunter2".to_vec()),
            "tls.key has no private key in PEM",
        ),
        (
            with(&|files| files.ca.clear()),
            "ca.crt has no certificate in PEM",
        ),
        (refusal(&expired), "it has expired: renew it"),
        (refusal(&early.unwrap()), "isn't valid yet"),
        (
            refusal(&for_servers.unwrap()),
            "both server auth and client auth",
        ),
        (refusal(&nameless.unwrap()), "names nobody"),
    ] {
        assert!(refused.contains(words), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
}

#[test]
fn a_missing_file_is_named_with_what_to_do() {
    let authority = Authority::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    write(
        directory.path(),
        &authority.issue(&Request::new(NAME)).unwrap(),
    )
    .unwrap();
    std::fs::remove_file(directory.path().join(CA_FILE)).unwrap();
    let error = Credentials::open(directory.path(), None, UnixTime::now()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("ca.crt") && text.contains("mount the Secret"),
        "{text}"
    );
    std::fs::create_dir(directory.path().join(CA_FILE)).unwrap();
    let error = Credentials::open(directory.path(), None, UnixTime::now()).unwrap_err();
    assert!(matches!(error, LoadError::NotAFile { .. }), "{error}");
}

#[test]
fn a_new_issue_is_used_and_a_broken_one_is_told_once() {
    let authority = Authority::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let request = Request::new(NAME);
    write(directory.path(), &authority.issue(&request).unwrap()).unwrap();
    let now = UnixTime::now();
    let credentials = Credentials::open(directory.path(), None, now).unwrap();
    let first = credentials.current();
    assert_eq!(credentials.reload(now), Reload::Unchanged);
    // Half of a swap: the next look sees the other half.
    let next = authority.issue(&request).unwrap();
    std::fs::write(directory.path().join(KEY_FILE), &next.key).unwrap();
    let kept = credentials.reload(now);
    assert!(
        matches!(&kept, Reload::Kept(why) if why.contains("doesn't fit")),
        "{kept:?}"
    );
    assert_eq!(credentials.reload(now), Reload::Unchanged);
    assert!(credentials.fault().is_some());
    assert!(Arc::ptr_eq(&first, &credentials.current()));
    write(directory.path(), &next).unwrap();
    assert_eq!(credentials.reload(now), Reload::Changed);
    assert_eq!(credentials.fault(), None);
    assert!(!Arc::ptr_eq(&first, &credentials.current()));
}

#[test]
fn all_three_files_are_of_one_generation_where_kubernetes_swaps_them() {
    let authority = Authority::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let link = |target: &str, name: &str| {
        std::os::unix::fs::symlink(target, path("new")).unwrap();
        std::fs::rename(path("new"), path(name)).unwrap();
    };
    for generation in ["..1", "..2"] {
        std::fs::create_dir(path(generation)).unwrap();
        let files = authority.issue(&Request::new(NAME)).unwrap();
        write(&path(generation), &files).unwrap();
    }
    link("..1", "..data");
    for name in [crate::CERTIFICATE_FILE, KEY_FILE, CA_FILE] {
        link(&format!("..data/{name}"), name);
    }
    let credentials = Credentials::open(directory.path(), None, UnixTime::now()).unwrap();
    link("..2", "..data");
    std::fs::remove_dir_all(path("..1")).unwrap();
    assert_eq!(credentials.reload(UnixTime::now()), Reload::Changed);
}

#[test]
fn nothing_that_can_be_printed_holds_the_key() {
    let authority = Authority::new().unwrap();
    let files = authority.issue(&Request::new(NAME)).unwrap();
    let credentials = opened(&files).unwrap();
    let key = String::from_utf8(files.key.clone()).unwrap();
    let secret = key.lines().nth(1).unwrap();
    let bytes = format!("{:?}", &files.key[40..60]);
    let loaded = credentials.current();
    for printed in [
        format!("{files:?}"),
        format!("{credentials:?}"),
        format!("{loaded:?} {:?}", loaded.server(crate::Plane::Data)),
        format!("{:?}", loaded.client(crate::Plane::Control)),
    ] {
        assert!(!printed.contains(secret), "{printed}");
        assert!(
            !printed.contains(bytes.trim_matches(['[', ']'])),
            "{printed}"
        );
    }
}
