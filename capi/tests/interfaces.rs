//! Twenty interfaces in a private network namespace: discovery is fast and selects the right one.

use ofi_harness::{Run, built, missing};
use std::process::Command;

/// Ten veth pairs with an address on one end, a bridge, and a default route via the fourth pair;
/// then runs the arguments.
const NAMESPACE: &str = r#"
set -e
ip link set lo up
ip link add br0 type bridge
ip addr add 10.99.0.1/24 dev br0
ip link set br0 up
i=0
while [ $i -lt 10 ]; do
    ip link add net$i type veth peer name far$i
    ip addr add 10.$i.0.1/24 dev net$i
    ip link set net$i up
    ip link set far$i up
    i=$((i + 1))
done
ip link set far7 down
ip route add default via 10.3.0.254
exec "$@"
"#;

/// Runs fi_info in such a namespace; returns its output.
fn in_namespace(arguments: &[&str]) -> Option<String> {
    let namespace = ["unshare", "--map-root-user", "--net", "sh", "-c", NAMESPACE, "sh"];
    let there =
        Command::new("unshare").args(["-rn", "ip", "link"]).output().is_ok_and(|output| output.status.success());
    if !there {
        missing("a network namespace (unshare, ip) cannot be made here");
        return None;
    }
    let run = Run::new(built("fi_info"), 20).arguments(arguments).inside(namespace);
    let output = run.output().unwrap_or_else(|why| panic!("{why}"))?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn domains(extra: &[&str]) -> Option<Vec<String>> {
    let mut arguments = vec!["-p", "tcp", "-t", "FI_EP_RDM", "-a", "FI_SOCKADDR_IN"];
    arguments.extend(extra);
    let text = in_namespace(&arguments)?;
    let own = text.split("provider: ").filter(|block| block.starts_with("tcp\n"));
    let domain = |block: &str| block.lines().find_map(|line| line.trim().strip_prefix("domain: ").map(str::to_owned));
    Some(own.filter_map(domain).collect())
}

#[test]
fn the_way_out_comes_first_and_what_is_down_late() {
    let Some(found) = domains(&[]) else { return };
    assert_eq!(found.first().map(String::as_str), Some("net3"), "{found:?}");
    assert_eq!(found.last().map(String::as_str), Some("lo"), "{found:?}");
    assert_eq!(found[found.len() - 3..][..2].iter().filter(|name| *name == "net7").count(), 1, "{found:?}");
    let mut once = found.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), found.len(), "each is there once: {found:?}");
}

#[test]
fn the_route_to_the_destination_is_asked() {
    for (node, name) in [("10.5.0.9", "net5"), ("198.51.100.7", "net3"), ("127.0.0.1", "lo"), ("10.99.0.7", "br0")] {
        let Some(found) = domains(&["-n", node]) else { return };
        assert_eq!(found, [name], "to {node}");
    }
}
