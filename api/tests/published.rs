//! What a process publishes of its endpoints: others find out what a blocked task waits for.

use ofi::published::{self, Process};
use ofi::{EndpointType, Errno, Fabric, Info, ProgressModel, RdmEndpoint};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time limit of a test; publishing takes two seconds at most.
const LIMIT: Duration = Duration::from_secs(20);

fn open(provider: &str, progress: ProgressModel) -> RdmEndpoint {
    let query = Info::builder().provider(provider).endpoint(EndpointType::RDM).progress(progress);
    let info = query.query().expect("an offer").remove(0);
    let domain = Fabric::open(&info).and_then(|fabric| fabric.domain(&info)).expect("a domain");
    RdmEndpoint::open(&domain, &info).expect("an endpoint")
}

/// Looks at this process until its state is as wanted.
#[track_caller]
fn until(what: &str, is_so: impl Fn(&Process) -> bool) -> Process {
    let start = ofi_os::clock::now();
    loop {
        match published::process(std::process::id()) {
            Ok(process) if is_so(&process) => return process,
            other => assert!(ofi_os::clock::now().since(start) < LIMIT, "{what}: {other:?}"),
        }
        std::thread::yield_now();
    }
}

/// One test, because all of a process's endpoints are published together.
#[test]
fn a_blocked_task_shows_what_it_waits_for() {
    for (provider, progress) in
        [("shm", ProgressModel::MANUAL), ("tcp", ProgressModel::MANUAL), ("tcp", ProgressModel::AUTO)]
    {
        let ep = open(provider, progress);
        let name = ep.local_addr().expect("an address").to_string();
        let me = ep.peer(ep.local_addr().expect("an address")).expect("a handle");
        let text = format!("{provider} {progress:?}");
        std::thread::scope(|scope| {
            let blocked = scope.spawn(|| ofi::block_on(ep.receive_tagged(7, 0, vec![0; 64])).0);
            let process =
                until(&text, |process| process.endpoints.iter().any(|one| one.addr == name && one.pending == 1));
            let found = process.endpoints.iter().find(|one| one.addr == name).expect("it was there");
            assert_eq!(found.provider, provider);
            assert!(found.details.contains("receive 0: Posted"), "{}", found.details);
            assert!(published::age(found) < LIMIT && !process.command.is_empty());
            assert!(published::processes().iter().any(|process| process.id == std::process::id()));
            ofi::block_on(ep.send_tagged(me, 7, "hello")).0.expect("it is sent");
            assert_eq!(blocked.join().expect("no panic").expect("it is received").len(), 5);
        });
        drop(ep);
        let gone = published::process(std::process::id()).expect_err("there is no endpoint any more");
        assert_eq!(gone.errno(), Errno::ENODATA);
    }
}

#[test]
fn a_process_without_endpoints_has_nothing_to_show() {
    let mut child = Command::new("sleep").arg("100").spawn().expect("sleep(1)");
    let errno = published::process(child.id()).expect_err("it uses no library").errno();
    child.kill().expect("it runs");
    child.wait().expect("it has ended");
    assert_eq!(errno, Errno::ENODATA);
}

/// Runs one of the ignored tests below in a process of its own, and returns its standard error.
fn run(test: &str, variable: (&str, &str)) -> String {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--ignored", "--exact", "--nocapture", test]).env(variable.0, variable.1);
    let child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    let output = child.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    errors
}

#[test]
#[ignore = "other tests run it"]
fn waits_in_vain() {
    let ep = open("shm", ProgressModel::MANUAL);
    let receive = ep.receive(vec![0; 8]).timeout(Duration::from_secs(4));
    assert!(ofi::block_on(receive).0.is_err());
}

#[test]
fn a_stalled_endpoint_is_described_on_standard_error() {
    let errors = run("waits_in_vain", ("FI_OFI_STALL", "1"));
    assert_eq!(errors.matches("nothing has moved for").count(), 1, "{errors}");
    assert!(errors.contains("on endpoint fi_shm://") && errors.contains("of shm, with 1 operations"), "{errors}");
    assert!(errors.contains("\nreceive 0: Posted\n"), "{errors}");
    assert_eq!(run("waits_in_vain", ("FI_OFI_STALL", "0")).matches("nothing has moved").count(), 0);
}

#[test]
#[ignore = "other tests run it"]
fn publishes_nothing() {
    waits_in_vain();
    assert_eq!(published::process(std::process::id()).expect_err("it is off").errno(), Errno::ENODATA);
}

#[test]
fn publishing_can_be_turned_off() {
    run("publishes_nothing", ("FI_OFI_STATE", "no"));
}
