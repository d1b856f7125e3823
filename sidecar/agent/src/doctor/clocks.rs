//! What tells the time.

use super::{Finding, Root};

const SUBJECT: &str = "clocks";
const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

pub(super) fn examine(root: &Root) -> Vec<Finding> {
    let mut findings = vec![source(root.text(SOURCE).as_deref())];
    let daemons = root.names("/proc").into_iter().filter_map(|name| {
        name.parse::<u32>().ok()?;
        root.text(&format!("/proc/{name}/comm"))
    });
    findings.push(synchronised(daemons));
    findings
}

/// Heartbeats and rates are told by the monotonic clock, which is read some hundred thousand times a second.
fn source(name: Option<&str>) -> Finding {
    match name {
        Some(name @ ("hpet" | "acpi_pm" | "jiffies" | "refined-jiffies")) => Finding::note(
            SUBJECT,
            format!("the kernel reads the time from {name}, at microseconds a call"),
            "boot with a stable TSC, or give the virtual machine its host's clock (kvm-clock, hyperv): reading the time is on the path of every chunk",
        ),
        Some(name) => Finding::good(SUBJECT, format!("the kernel reads the time from {name}")),
        None => Finding::note(
            SUBJECT,
            format!("{SOURCE} can't be read"),
            "mount /sys to have it looked at",
        ),
    }
}

/// The wall clock is only in traces and logs: transfers take their deadlines along as times that are left.
fn synchronised(mut processes: impl Iterator<Item = String>) -> Finding {
    const DAEMONS: [&str; 5] = ["chronyd", "ntpd", "systemd-timesyn", "ptp4l", "openntpd"];
    match processes.find(|name| DAEMONS.contains(&name.as_str())) {
        Some(daemon) => Finding::good(SUBJECT, format!("{daemon} keeps the wall clock")),
        None => Finding::note(
            SUBJECT,
            "no time daemon is seen from here; in a container that says nothing of the node",
            "run chrony on the node: spans of two machines with different clocks don't line up in a trace (a --peer shows the difference)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Grade;
    use super::*;

    #[test]
    fn a_slow_clock_is_told_from_a_fast_one() {
        assert_eq!(source(Some("tsc")).grade, Grade::Good);
        assert_eq!(source(Some("hpet")).grade, Grade::Note);
        assert_eq!(source(None).grade, Grade::Note);
    }

    #[test]
    fn a_time_daemon_is_known_by_its_name() {
        let names = |names: &'static [&str]| names.iter().map(|name| (*name).to_owned());
        let found = synchronised(names(&["bash", "chronyd"]));
        assert_eq!(found.grade, Grade::Good);
        assert_eq!(synchronised(names(&["bash"])).grade, Grade::Note);
    }
}
