//! The machine of a run: results are valid for this machine only.

use crate::bench::sample::{Programs, Settings, of_bare};
use crate::disk;
use std::path::Path;
use std::process::Command;

/// The properties of a machine that determine message speed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Machine {
    /// Names and values, in display order.
    pub(crate) facts: Vec<(&'static str, String)>,
}

fn line_of(path: impl AsRef<Path>) -> Option<String> {
    disk::read(path).ok()?.lines().next().map(|line| line.trim().to_owned())
}

/// A value of `/proc/cpuinfo`.
fn processor_fact(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

/// The caches of a core, such as "L2 1024K".
fn caches(core: &Path) -> Vec<String> {
    let places = disk::list(core.join("cache")).unwrap_or_default();
    let cache = |place: &Path| {
        let read = |name: &str| line_of(place.join(name));
        let kind = match read("type")?.as_str() {
            "Data" => "d",
            "Instruction" => "i",
            _ => "",
        };
        let shared = read("shared_cpu_list")?;
        let with = if shared.contains([',', '-']) { format!(" (cores {shared})") } else { String::new() };
        Some(format!("L{}{kind} {}{with}", read("level")?, read("size")?))
    };
    places.iter().filter_map(|place| cache(place)).collect()
}

/// The cores that this process may use, from the kernel's list such as "0-3,8".
fn allowed_cores() -> Vec<usize> {
    let text = disk::read("/proc/self/status").unwrap_or_default();
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    parse_list(list.unwrap_or_default().trim())
}

fn parse_list(list: &str) -> Vec<usize> {
    let range = |part: &str| -> Option<Vec<usize>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse().ok()?..=last.parse().ok()?).collect())
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// Two cores for two processes: the first allowed one and another, preferably no SMT sibling.
///
/// # Errors
/// If only one core may be used: two spinning processes would wait for each other's time slices.
pub(crate) fn two_cores() -> Result<[usize; 2], String> {
    let allowed = allowed_cores();
    let siblings = |core: usize| -> Vec<usize> {
        let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
        line_of(path).map(|list| parse_list(&list)).unwrap_or_default()
    };
    let first = *allowed.first().ok_or("the kernel does not report which cores this process may use")?;
    let others = || allowed.iter().copied().filter(|core| *core != first);
    let apart = others().find(|core| !siblings(first).contains(core));
    let second = apart.or_else(|| others().next()).ok_or("two cores are needed, and this process may use one")?;
    Ok([first, second])
}

/// Collects the facts and measures cache-line latency and memcpy.
pub(crate) fn look(programs: &Programs, settings: &Settings) -> Result<Machine, String> {
    let processor = disk::read("/proc/cpuinfo").unwrap_or_default();
    let mut facts = Vec::new();
    let mut add = |name: &'static str, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    add("processor", processor_fact(&processor, "model name"));
    let family = |name| processor_fact(&processor, name);
    add(
        "family, model, stepping",
        Some([family("cpu family"), family("model"), family("stepping")].map(Option::unwrap_or_default).join(", ")),
    );
    let virtual_machine = processor_fact(&processor, "flags").is_some_and(|flags| flags.contains(" hypervisor"));
    let [a, b] = settings.cores;
    let kind = if virtual_machine { " of a virtual machine" } else { "" };
    add("cores", Some(format!("{} allowed{kind}; processes on {a} and {b}", allowed_cores().len())));
    let core = format!("/sys/devices/system/cpu/cpu{a}");
    add("caches of a core", Some(caches(Path::new(&core)).join(", ")));
    let memory = disk::read("/proc/meminfo").unwrap_or_default();
    add("memory", memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).map(|size| size.trim().to_owned()));
    add("kernel", line_of("/proc/sys/kernel/osrelease"));
    add("congestion control", line_of("/proc/sys/net/ipv4/tcp_congestion_control"));
    add("MTU of lo", line_of("/sys/class/net/lo/mtu"));
    add("huge pages", line_of("/sys/kernel/mm/transparent_hugepage/enabled"));
    let words = |words: &[&str]| vec![words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()];
    let line = of_bare(programs, settings, &words(&["--pattern", "line"]), true, 0)?.value;
    add("half a round trip of a cache line", Some(format!("{:.0} ns", line * 1e3)));
    let copy = |size: &str, buffers: &str| -> Result<String, String> {
        let way = words(&["--pattern", "copy-rate", "--size", size, "--buffers", buffers]);
        of_bare(programs, settings, &way, false, 0).map(|sample| format!("{:.1} GB/s", sample.value / 1e3))
    };
    add("memcpy of 64 KiB in cache", Some(copy("65536", "kept")?));
    add("memcpy of 1 MiB in cache", Some(copy("1048576", "kept")?));
    add("memcpy of 1 MiB out of 64 MB", Some(copy("1048576", "cold")?));
    Ok(Machine { facts })
}

/// The share of all cores that other processes use, measured over an idle second of the bench.
pub(crate) fn load_of_others() -> Option<f64> {
    let before = processor_times(&line_of("/proc/stat")?)?;
    Command::new("sleep").arg("1").status().ok()?;
    let after = processor_times(&line_of("/proc/stat")?)?;
    let (idle, all) = (after.0 - before.0, after.1 - before.1);
    (all > 0.0).then(|| 1.0 - idle / all)
}

/// Idle time and total time from the first line of /proc/stat; numbers four and five are idle time.
fn processor_times(line: &str) -> Option<(f64, f64)> {
    let times: Vec<f64> = line.split_whitespace().skip(1).filter_map(|number| number.parse().ok()).collect();
    // The last two numbers are guest time, which earlier numbers include.
    Some((times.get(3)? + times.get(4)?, times.iter().take(8).sum()))
}

/// The first line that a command prints, if it succeeds.
pub(crate) fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).current_dir(crate::run::root()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).lines().next().map(|line| line.trim().to_owned());
    text.filter(|line| output.status.success() && !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_parsed() {
        assert_eq!(parse_list("0-2,8"), [0, 1, 2, 8]);
        assert_eq!(parse_list("5"), [5]);
        assert!(parse_list("").is_empty());
    }

    #[test]
    fn idle_and_all_time_are_found() {
        assert_eq!(processor_times("cpu  10 1 5 100 4 0 0 2 7 7"), Some((104.0, 122.0)));
        assert_eq!(processor_times("cpu 1"), None);
    }

    #[test]
    fn facts_of_a_processor_are_found() {
        let text = "processor\t: 0\nmodel\t\t: 2\nmodel name\t: Some Processor: fast\n";
        assert_eq!(processor_fact(text, "model name").as_deref(), Some("Some Processor: fast"));
        assert_eq!(processor_fact(text, "model").as_deref(), Some("2"));
        assert_eq!(processor_fact(text, "stepping"), None);
    }
}
