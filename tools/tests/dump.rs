//! Runs `ofi dump` and `ofi top` beside a process that waits for a message.

use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
use std::process::{Command, Output};

/// How often a test looks at a process: each look starts a program, which takes milliseconds.
const LOOKS: u32 = 10_000;

fn ofi(arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.arg("60").arg(env!("CARGO_BIN_EXE_ofi")).args(arguments).output().expect("timeout(1) runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_waiting_process_is_shown() {
    let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query().expect("an offer").remove(0);
    let domain = Fabric::open(&info).and_then(|fabric| fabric.domain(&info)).expect("a domain");
    let ep = RdmEndpoint::open(&domain, &info).expect("an endpoint");
    let me = ep.peer(ep.local_addr().expect("an address")).expect("a handle");
    let name = ep.local_addr().expect("an address").to_string();
    let process = std::process::id().to_string();
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| ofi::block_on(ep.receive_tagged(3, 0, vec![0; 8])).0);
        // It publishes within two seconds.
        let mut shown = ofi(&["dump", &process]);
        for _ in 0..LOOKS {
            if shown.status.success() {
                break;
            }
            shown = ofi(&["dump", &process]);
        }
        let (list, top) = (ofi(&["dump"]), ofi(&["top", "-n", "1"]));
        // Before the checks, whose failure would leave the thread waiting.
        ofi::block_on(ep.send_tagged(me, 3, "hello")).0.expect("it is sent");
        blocked.join().expect("no panic").expect("it is received");
        assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
        let shown = text(&shown);
        assert!(shown.starts_with(&format!("process {process} ")), "{shown}");
        assert!(shown.contains(&format!("\nendpoint {name} of shm, as it was ")), "{shown}");
        assert!(shown.contains("\n  1 operations pending, 0 failed;"), "{shown}");
        assert!(shown.contains("\n  | receive 0: Posted"), "{shown}");
        let list = text(&list);
        assert!(list.lines().any(|line| line.starts_with(&format!("{process} "))), "{list}");
        let top = text(&top);
        assert!(top.lines().any(|line| line.trim_start().starts_with(&process) && line.ends_with(&name)), "{top}");
    });
}

#[test]
fn a_process_without_state_is_an_error() {
    let output = ofi(&["dump", "4294967295"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("read the state of process 4294967295: No such file"), "{errors}");
}
