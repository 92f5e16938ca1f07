//! Debian's fi_info and fi_pingpong, unmodified, on the library just built.

use ofi_harness::{Run, built, fabric, missing};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// Whether the tools are installed.
fn tools() -> bool {
    let there = Command::new("fi_pingpong").arg("-h").output().is_ok();
    if !there {
        missing("fi_pingpong (package libfabric-bin)");
    }
    there
}

fn command(program: impl AsRef<Path>) -> Command {
    Run::new(program.as_ref(), 300).on(fabric()).command()
}

fn good(output: Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert!(err.is_empty(), "fi_info prints errors: {err}");
    out.into_owned()
}

#[test]
fn fi_info_lists_what_there_is() {
    if !tools() {
        return;
    }
    let info = |arguments: &[&str]| good(command("fi_info").args(arguments).output().unwrap());
    let all = info(&[]);
    for line in ["provider: tcp\n", "provider: tcp;ofi_rxm\n", "type: FI_EP_RDM", "type: FI_EP_MSG", "domain: lo"] {
        assert!(all.contains(line), "{line:?} is not in\n{all}");
    }
    assert!(info(&["-l"]).starts_with("tcp:\n"));
    assert!(info(&["-v"]).contains("    fi_domain_attr:\n        domain: (nil)\n"));
    assert!(info(&["-e"]).contains("# FI_TCP_IFACE: String"));
    assert!(!info(&["-p", "tcp"]).contains("udp"));
    let newest = info(&["--version"]);
    assert!(newest.contains("libfabric"), "{newest}");
}

#[test]
fn our_fi_info_prints_the_same_text() {
    if !tools() {
        return;
    }
    let own = built("fi_info");
    let cases: &[&[&str]] = &[
        &[],
        &["-l"],
        &["-v"],
        &["-e"],
        &["-p", "tcp"],
        &["-p", "udp", "-v"],
        &["-t", "FI_EP_MSG"],
        &["-c", "FI_MSG|FI_MULTICAST", "-v"],
        &["-d", "lo"],
        &["-f", "127.0.0.0/8"],
        &["-n", "127.0.0.1", "-P", "4711"],
        &["-n", "localhost", "-a", "FI_SOCKADDR_IN", "-v"],
        &["-m", "FI_CONTEXT", "-p", "tcp;ofi_rxm"],
        &["-g", "FI_TCP"],
    ];
    // Only the API version of the headers a program was built with may differ, and random shm
    // names.
    let plain = |text: String| -> String {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("api_version:"));
        let fixed = lines.map(|line| line.split_once("fi_shm://").map_or(line, |(field, _)| field));
        fixed.collect::<Vec<_>>().join("\n")
    };
    for case in cases {
        let debian = command("fi_info").args(*case).output().unwrap();
        let ours = command(&own).args(*case).output().unwrap();
        let text = |output: &Output| plain(String::from_utf8_lossy(&output.stdout).into_owned());
        assert_eq!(text(&ours), text(&debian), "fi_info {case:?}");
        assert!(!text(&ours).is_empty(), "fi_info {case:?}");
        assert_eq!(ours.status.code(), debian.status.code(), "fi_info {case:?}");
    }
}

/// Runs a client and a server.
fn pingpong(arguments: &[&str]) {
    // One pair at a time: the control port is chosen here, and there are only two cores.
    static TURN: Mutex<u32> = Mutex::new(0);
    let mut turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    *turn += 1;
    let port = (20_000 + (std::process::id() * 16 + *turn) % 10_000).to_string();
    let mut server = command("fi_pingpong");
    server.args(["-B", &port]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let server = server.spawn().unwrap();
    // The server does not report when it listens, so retry the client until it connects.
    let mut last = None;
    for _ in 0..500 {
        let client = command("fi_pingpong").args(["-P", &port]).args(arguments).arg("127.0.0.1").output().unwrap();
        let refused = String::from_utf8_lossy(&client.stderr).contains("refused");
        last = Some(client);
        if !refused {
            break;
        }
    }
    let client = good(last.unwrap());
    assert!(client.contains("64") && client.contains("usec/xfer"), "{client}");
    good(server.wait_with_output().unwrap());
}

macro_rules! pairs {
    ($($name:ident: [$($argument:literal),*];)*) => {$(
        #[test]
        fn $name() {
            if tools() {
                pingpong(&[$($argument),*]);
            }
        }
    )*};
}

pairs! {
    rdm: ["-p", "tcp", "-e", "rdm"];
    rdm_checked: ["-p", "tcp", "-e", "rdm", "-c"];
    rdm_all_sizes: ["-p", "tcp", "-e", "rdm", "-S", "all"];
    rdm_all_sizes_checked: ["-p", "tcp", "-e", "rdm", "-c", "-S", "all"];
    msg: ["-p", "tcp", "-e", "msg"];
    msg_checked: ["-p", "tcp", "-e", "msg", "-c"];
    msg_all_sizes: ["-p", "tcp", "-e", "msg", "-S", "all"];
    msg_all_sizes_checked: ["-p", "tcp", "-e", "msg", "-c", "-S", "all"];
    dgram: ["-p", "udp", "-e", "dgram"];
    layered: ["-p", "tcp;ofi_rxm", "-e", "rdm"];
    layered_all_sizes_checked: ["-p", "tcp;ofi_rxm", "-e", "rdm", "-c", "-S", "all"];
}
