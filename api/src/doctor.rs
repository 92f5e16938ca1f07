//! Finds settings of this machine that impair the library, and suggests fixes.

mod devices;

use crate::{Query, Version, discover};
use ofi_os::limits::{self, Limit};
use ofi_os::netif;
use ofi_os::socket::Socket;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// How serious a finding is.
///
/// ```
/// use ofi::doctor::{Grade, examine};
/// let problems = examine().into_iter().filter(|finding| finding.grade == Grade::Problem).count();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// As it should be.
    Good,
    /// Works, but may surprise.
    Notice,
    /// Something will not work.
    Problem,
}

/// The result of a check.
///
/// ```
/// for finding in ofi::doctor::examine() {
///     println!("{}: {}", finding.area, finding.text);
///     if let Some(advice) = finding.advice {
///         println!("  {advice}");
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The area that it belongs to.
    pub area: &'static str,
    /// How serious it is.
    pub grade: Grade,
    /// What was found.
    pub text: String,
    /// What to do.
    pub advice: Option<String>,
}

fn good(area: &'static str, text: impl Into<String>) -> Finding {
    Finding { area, grade: Grade::Good, text: text.into(), advice: None }
}

fn bad(area: &'static str, grade: Grade, text: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { area, grade, text: text.into(), advice: Some(advice.into()) }
}

/// Checks everything: providers, devices, interfaces, ports, limits, shared memory and the
/// environment.
///
/// ```
/// assert!(!ofi::doctor::examine().is_empty());
/// ```
pub fn examine() -> Vec<Finding> {
    let mut out = Vec::new();
    providers(&mut out);
    let locked = limits::limit(Limit::LockedMemory).map_or(u64::MAX, |(soft, _)| soft);
    devices::Machine { root: Path::new("/"), locked }.examine(&mut out);
    interfaces(&mut out);
    ports(&mut out);
    host_name(&mut out);
    limits_of_process(&mut out);
    shared_memory(&mut out);
    environment(&mut out);
    out
}

fn providers(out: &mut Vec<Finding>) {
    const AREA: &str = "providers";
    match discover(&Query { version: Version::API, ..Query::default() }) {
        Ok((infos, _)) if !infos.is_empty() => {
            let mut names: Vec<String> = Vec::new();
            for info in &infos {
                let name = format!("{} {}", info.fabric.prov_name.as_deref().unwrap_or("?"), info.ep.kind);
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            out.push(good(AREA, names.join(", ")));
        }
        Ok((_, refusals)) => {
            let advice = "unset the variables named in the reasons, or bring an interface up";
            out.push(bad(AREA, Grade::Problem, refusals.to_string(), advice));
        }
        Err(error) => out.push(bad(AREA, Grade::Problem, error.to_string(), "report this")),
    }
}

fn interfaces(out: &mut Vec<Finding>) {
    const AREA: &str = "interfaces";
    let all = match netif::interfaces() {
        Ok(all) => all,
        Err(error) => {
            out.push(bad(
                AREA,
                Grade::Problem,
                format!("they cannot be listed: {error}"),
                "no provider of sockets works",
            ));
            return;
        }
    };
    if !all.iter().any(|i| i.loopback) {
        let advice = "ip link set lo up: processes of this machine communicate through it";
        out.push(bad(AREA, Grade::Problem, "the loopback interface is down", advice));
    }
    if !all.iter().any(|i| !i.loopback && i.running) {
        let advice = "other machines cannot be reached; communication within this machine works";
        out.push(bad(AREA, Grade::Notice, "no interface besides loopback has a carrier", advice));
    }
    for interface in &all {
        let mut words = vec![format!("{} {}", interface.name, interface.addr.ip())];
        if interface.speed > 0 {
            words.push(format!("{} Mbit/s", interface.speed));
        }
        for (set, word) in [
            (!interface.running, "no carrier: tried last"),
            (interface.point_to_point, "point to point: tried late"),
            (interface.virtual_device, "virtual: tried late"),
        ] {
            if set {
                words.push(word.to_owned());
            }
        }
        out.push(good(AREA, words.join(", ")));
    }
}

fn ports(out: &mut Vec<Finding>) {
    const AREA: &str = "ports";
    let mut seen = BTreeSet::new();
    // `interfaces` reports why they cannot be listed.
    for interface in netif::interfaces().unwrap_or_default().iter().filter(|i| i.running && seen.insert(i.addr.ip())) {
        let ip: IpAddr = interface.addr.ip();
        match listen_and_connect(interface.addr) {
            Ok(()) => out.push(good(AREA, format!("{ip}: listening and connecting work"))),
            Err(error) => {
                let advice = "look for a packet filter (nft list ruleset) or for ports that are used up (ss -s)";
                out.push(bad(AREA, Grade::Problem, format!("{ip}: {error}"), advice));
            }
        }
    }
}

fn listen_and_connect(addr: SocketAddr) -> std::io::Result<()> {
    let listener = Socket::listen(addr, 1, None)?;
    let client = Socket::connect(listener.local_addr()?, None, None)?;
    // Within a host, connect returns at once; a filter that drops packets makes it time out.
    for _ in 0..1000 {
        match client.connected() {
            Some(result) => return result,
            None => std::thread::yield_now(),
        }
    }
    Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "connecting to this host timed out"))
}

fn host_name(out: &mut Vec<Finding>) {
    const AREA: &str = "host name";
    let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname") else { return };
    let name = name.trim();
    let family = ofi_os::resolve::Family::Any;
    let options = ofi_os::resolve::Options { family, passive: false, numeric: false, datagram: false };
    match ofi_os::resolve::resolve(Some(name), None, options) {
        Ok(found) if found.iter().all(|addr| addr.ip().is_loopback()) => {
            let advice = "peers that look this name up elsewhere reach themselves; give the name a real address in /etc/hosts or DNS";
            out.push(bad(AREA, Grade::Notice, format!("{name} resolves to loopback only"), advice));
        }
        Ok(found) => {
            let list: Vec<String> = found.iter().map(|addr| addr.ip().to_string()).collect();
            out.push(good(AREA, format!("{name} resolves to {}", list.join(", "))));
        }
        Err(error) => {
            let advice = "add it to /etc/hosts if programs look it up";
            out.push(bad(AREA, Grade::Notice, error.to_string(), advice));
        }
    }
}

const LIMITS: &str = "limits";
/// Descriptors that suffice for most jobs: each peer over tcp takes one.
const ENOUGH_DESCRIPTORS: u64 = 4096;
/// The advised limit, where the system allows it.
const MANY_DESCRIPTORS: u64 = 65_536;

fn show(limit: u64) -> String {
    if limit == u64::MAX { "unlimited".to_owned() } else { limit.to_string() }
}

/// What the limit of open descriptors allows, and what to set. The library does not raise it:
/// beyond 1,024 descriptors a process gets numbers that select(2) cannot take.
fn descriptors(soft: u64, hard: u64) -> Finding {
    let text = format!("open descriptors: {} (may be raised to {})", show(soft), show(hard));
    if hard < ENOUGH_DESCRIPTORS {
        let advice = "each peer over tcp takes one: have the hard limit raised (limits.conf, ulimit -Hn)";
        return bad(LIMITS, Grade::Problem, text, advice);
    }
    if soft < ENOUGH_DESCRIPTORS {
        let advice = format!(
            "each peer over tcp takes one, and the library does not raise the limit: start programs with many peers after \
             `ulimit -n {}`, unless they use select(2)",
            hard.min(MANY_DESCRIPTORS)
        );
        return bad(LIMITS, Grade::Notice, text, advice);
    }
    good(LIMITS, text)
}

fn limits_of_process(out: &mut Vec<Finding>) {
    if let Some((soft, hard)) = limits::limit(Limit::Descriptors) {
        out.push(descriptors(soft, hard));
    }
    if let Some((soft, _)) = limits::limit(Limit::LockedMemory) {
        let text = format!("locked memory: {} bytes", show(soft));
        if soft < 64 << 20 {
            let advice = "enough for tcp, udp and shm; RDMA adapters need more (ulimit -l unlimited)";
            out.push(bad(LIMITS, Grade::Notice, text, advice));
        } else {
            out.push(good(LIMITS, text));
        }
    }
    if let Some((soft, _)) = limits::limit(Limit::Processes) {
        out.push(good(LIMITS, format!("processes and threads: {}", show(soft))));
    }
}

fn shared_memory(out: &mut Vec<Finding>) {
    const AREA: &str = "shared memory";
    const PLACE: &str = "/dev/shm";
    match limits::space(PLACE) {
        None => out.push(bad(AREA, Grade::Notice, format!("{PLACE} does not exist"), "mount -t tmpfs tmpfs /dev/shm")),
        Some(_) if !limits::is_writable(PLACE) => {
            out.push(bad(AREA, Grade::Notice, format!("{PLACE} is not writable"), "chmod 1777 /dev/shm"));
        }
        Some((free, all)) => {
            let text = format!("{PLACE}: {} of {} MiB free", free >> 20, all >> 20);
            if free < 64 << 20 {
                let advice = "programs that use it may fail: remove stale files, or remount it with a larger size";
                out.push(bad(AREA, Grade::Notice, text, advice));
            } else {
                out.push(good(AREA, text));
            }
        }
    }
}

fn environment(out: &mut Vec<Finding>) {
    const AREA: &str = "environment";
    let known = ofi_registry::params();
    let mut set: Vec<(String, String)> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name.starts_with("FI_"))
        .collect();
    set.sort();
    for (name, value) in set {
        if known.iter().any(|param| param.name == name) {
            out.push(good(AREA, format!("{name}={value}")));
        } else {
            let text = format!("{name}={value} has no effect");
            out.push(bad(
                AREA,
                Grade::Notice,
                text,
                "misspelled, or meant for another implementation: fi_info -e lists the known variables",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_of_descriptors_is_reported_with_the_value_to_set() {
        let low = descriptors(1024, 524_288);
        assert_eq!(low.grade, Grade::Notice);
        assert!(low.text.contains("1024 (may be raised to 524288)"), "{}", low.text);
        assert!(low.advice.is_some_and(|advice| advice.contains("`ulimit -n 65536`") && advice.contains("select(2)")));
        assert!(descriptors(256, 4096).advice.is_some_and(|advice| advice.contains("`ulimit -n 4096`")));
        assert!(descriptors(1024, u64::MAX).advice.is_some_and(|advice| advice.contains("`ulimit -n 65536`")));
        assert_eq!(descriptors(65_536, 65_536), good(LIMITS, "open descriptors: 65536 (may be raised to 65536)"));
        assert_eq!(descriptors(u64::MAX, u64::MAX).grade, Grade::Good);
        // A soft limit above the hard limit cannot be set.
        let hard = descriptors(1024, 1024);
        assert_eq!(hard.grade, Grade::Problem);
        assert!(hard.advice.is_some_and(|advice| advice.contains("hard limit")));
    }
}
