//! What is said of each way in which the files can be wrong.

use std::path::Path;

use lynx_tls::authority::{Authority, Request, Starts, write};
use lynx_tls::{CA_FILE, CERTIFICATE_FILE, KEY_FILE};

use super::super::Grade;
use super::*;

const NAME: &str = "spiffe://test/ns/a/lynx/b";

/// What is found in a directory, now.
fn found_in(directory: &Path, peer_name: Option<&str>) -> Vec<Finding> {
    let tls = Tls {
        mode: TlsMode::All,
        directory: Some(directory.to_owned()),
        peer_name: peer_name.map(str::to_owned),
    };
    examine(&tls, &Security::open(&tls), UnixTime::now())
}

/// A directory with a good issue of `request`, changed.
fn directory(request: &Request, change: impl FnOnce(&Path)) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let files = Authority::new().unwrap().issue(request).unwrap();
    write(directory.path(), &files).unwrap();
    change(directory.path());
    directory
}

/// The one thing that is wrong with a directory.
fn problem(directory: &tempfile::TempDir) -> Finding {
    let [found] = &found_in(directory.path(), None)[..] else {
        panic!("one finding");
    };
    assert_eq!(found.grade, Grade::Problem, "{found:?}");
    assert!(!found.remedy.is_empty(), "{found:?}");
    found.clone()
}

/// Another authority's issue of the same.
fn other() -> tempfile::TempDir {
    directory(&Request::new(NAME), |_| {})
}

fn copy(file: &str, from: &tempfile::TempDir, to: &Path) {
    std::fs::copy(from.path().join(file), to.join(file)).unwrap();
}

#[test]
fn a_file_that_is_missing_or_is_none_is_named() {
    for file in [CERTIFICATE_FILE, KEY_FILE, CA_FILE] {
        let missing = directory(&Request::new(NAME), |path| {
            std::fs::remove_file(path.join(file)).unwrap();
        });
        assert!(problem(&missing).found.contains(file));
        let folder = directory(&Request::new(NAME), |path| {
            std::fs::remove_file(path.join(file)).unwrap();
            std::fs::create_dir(path.join(file)).unwrap();
        });
        assert!(problem(&folder).found.contains("is no file"));
        let garbage = directory(&Request::new(NAME), |path| {
            std::fs::write(path.join(file), "no PEM").unwrap();
        });
        let found = problem(&garbage);
        assert!(found.found.contains(file), "{found:?}");
        assert!(found.remedy.contains("PEM"), "{found:?}");
    }
}

#[test]
fn a_key_of_another_issue_is_told_from_an_authority_of_another() {
    let key = directory(&Request::new(NAME), |path| copy(KEY_FILE, &other(), path));
    assert!(problem(&key).found.contains("tls.key doesn't fit tls.crt"));
    let authority = directory(&Request::new(NAME), |path| copy(CA_FILE, &other(), path));
    let found = problem(&authority).found;
    assert!(
        found.contains("isn't signed by an authority in ca.crt"),
        "{found}"
    );
}

#[test]
fn a_certificate_that_is_not_valid_now_or_not_for_both_ends_is_told_so() {
    let request = || Request::new(NAME);
    let early = Request {
        starts: Starts::In(Duration::from_secs(3600)),
        ..request()
    };
    let serving = Request {
        client: false,
        ..request()
    };
    for (request, words) in [
        (request().expired(), "it has expired"),
        (early, "it isn't valid yet"),
        (serving, "both server auth and client auth"),
    ] {
        let found = problem(&directory(&request, |_| {})).found;
        assert!(found.contains(words), "{found}");
    }
    let nameless = Request {
        names: Vec::new(),
        ..request()
    };
    let found = problem(&directory(&nameless, |_| {}));
    assert!(found.found.contains("names nobody"), "{found:?}");
}

#[test]
fn an_end_within_a_week_is_noted_and_a_later_one_is_not() {
    let of = |days| {
        let now = UnixTime::now();
        let end = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs() + days * DAY));
        lasts(end, now)
    };
    assert_eq!(of(6).grade, Grade::Note);
    assert_eq!(of(6).found, "the certificate ends in 6 days and 0 hours");
    assert_eq!(of(8).grade, Grade::Good);
}

#[test]
fn a_good_issue_is_said_to_be_in_use_and_by_whom() {
    let good = directory(&Request::new(NAME), |_| {});
    let findings = found_in(good.path(), None);
    assert_eq!(findings[0].grade, Grade::Good, "{findings:?}");
    assert!(findings[0].found.contains(NAME), "{findings:?}");
    // The name that peers look for is this agent's own, too.
    assert_eq!(found_in(good.path(), Some(NAME)).len(), 2);
    let [.., last] = &found_in(good.path(), Some("spiffe://test/other"))[..] else {
        panic!("a finding");
    };
    assert_eq!(last.grade, Grade::Problem);
    assert!(
        last.found.contains("tls.peerName is spiffe://test/other"),
        "{last:?}"
    );
}

#[test]
fn nothing_encrypted_is_noted() {
    let tls = Tls {
        mode: TlsMode::Off,
        directory: None,
        peer_name: None,
    };
    let [found] = &examine(&tls, &Security::open(&tls), UnixTime::now())[..] else {
        panic!("one finding");
    };
    assert_eq!(found.grade, Grade::Note);
    assert!(found.found.contains("in clear"), "{found:?}");
}
