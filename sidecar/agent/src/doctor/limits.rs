//! What the system lets a process have.

use lynx_verbs::MEMLOCK_ADVICE;
use rustix::process::{Resource, Rlimit, getrlimit};

use super::{Finding, Root};

/// Two connections a link, one a client, and some.
const FILES: u64 = 4096;

pub(super) fn examine(root: &Root) -> Vec<Finding> {
    vec![
        files(getrlimit(Resource::Nofile)),
        locked(
            getrlimit(Resource::Memlock),
            root.has("/sys/class/infiniband"),
        ),
        huge_pages(
            root.text("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
                .as_deref(),
        ),
    ]
}

fn files(limit: Rlimit) -> Finding {
    let now = limit
        .current
        .map_or("without a limit".to_owned(), |most| format!("{most}"));
    let found = format!("open files: {now}");
    if limit.current.is_some_and(|most| most < FILES) {
        Finding::note(
            "limits",
            found,
            format!(
                "ulimit -n {FILES} or more (LimitNOFILE= of the container runtime): a client and a link take one and two each"
            ),
        )
    } else {
        Finding::good("limits", found)
    }
}

fn locked(limit: Rlimit, has_rdma: bool) -> Finding {
    match limit.current {
        None => Finding::good("memlock", "memory may be locked without a limit"),
        Some(most) => {
            let found = format!("{} KiB of memory may be locked", most / 1024);
            if has_rdma {
                let found = format!("{found}, and there are RDMA devices");
                Finding::problem("memlock", found, MEMLOCK_ADVICE)
            } else {
                let remedy =
                    format!("only RDMA and pinned memory need more; for them, {MEMLOCK_ADVICE}");
                Finding::note("memlock", found, remedy)
            }
        }
    }
}

/// `always within_size advise [never] deny force`.
fn huge_pages(shared: Option<&str>) -> Finding {
    let chosen = shared.and_then(|text| text.split_once('[')?.1.split_once(']'));
    match chosen.map(|(chosen, _)| chosen) {
        Some(chosen @ ("always" | "within_size" | "advise" | "force")) => Finding::good(
            "huge pages",
            format!("shared memory may have them ({chosen})"),
        ),
        Some(chosen) => Finding::note(
            "huge pages",
            format!("shared memory has none ({chosen})"),
            "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled: fewer misses when a pool of gigabytes is split and merged",
        ),
        None => Finding::note(
            "huge pages",
            "the kernel doesn't say whether shared memory may have them",
            "nothing, unless split and merge are slower than `lynx bench codec` says",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Grade;
    use super::*;

    fn limit(current: Option<u64>) -> Rlimit {
        Rlimit {
            current,
            maximum: None,
        }
    }

    #[test]
    fn locked_memory_is_a_problem_only_where_there_is_rdma() {
        assert_eq!(locked(limit(None), true).grade, Grade::Good);
        assert_eq!(locked(limit(Some(8 << 20)), false).grade, Grade::Note);
        assert_eq!(locked(limit(Some(8 << 20)), true).grade, Grade::Problem);
    }

    #[test]
    fn few_files_are_noted() {
        assert_eq!(files(limit(Some(1024))).grade, Grade::Note);
        assert_eq!(files(limit(Some(1 << 20))).grade, Grade::Good);
    }

    #[test]
    fn the_bracket_marks_what_the_kernel_does() {
        let text = "always within_size advise [never] deny force";
        assert_eq!(huge_pages(Some(text)).grade, Grade::Note);
        let text = "always within_size [advise] never deny force";
        assert_eq!(huge_pages(Some(text)).grade, Grade::Good);
        assert_eq!(huge_pages(None).grade, Grade::Note);
    }
}
