//! The programs of `examples/c`, compiled with our headers and run over the library under test.

use ofi_harness::{Program, Run, fabric};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Time limit of a program in seconds, above its own.
const LIMIT: u32 = 60;

fn compile(name: &str) -> PathBuf {
    let source = Path::new(HERE).join("../examples/c").join(name);
    let program = Program::new(source).include(Path::new(HERE).join("include")).link(fabric());
    program.compile().unwrap_or_else(|why| panic!("{why}"))
}

fn on(provider: &str, program: &str) -> Run {
    Run::new(compile(program), LIMIT).on(fabric()).variable("FI_PROVIDER", provider)
}

fn hello(provider: &str) {
    let output = on(provider, "hello.c").output().unwrap_or_else(|why| panic!("{why}"));
    let output = output.expect("it needs nothing");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("hello over {provider}\n"));
}

#[test]
fn hello_arrives() {
    hello("tcp");
}

#[test]
fn hello_arrives_by_the_old_name() {
    hello("tcp;ofi_rxm");
}

#[test]
fn hello_arrives_within_a_host() {
    hello("shm");
}

fn ring(provider: &str, processes: &str) {
    let output = on(provider, "ring.c").argument(processes).output().unwrap_or_else(|why| panic!("{why}"));
    let output = output.expect("it needs nothing");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("a ring of {processes} over {provider}\n"));
}

#[test]
fn a_ring_closes() {
    ring("tcp", "4");
}

#[test]
fn a_ring_closes_within_a_host() {
    ring("shm", "8");
}

#[test]
fn one_process_is_a_ring() {
    ring("tcp", "1");
}

fn scalable(provider: &str) {
    let output = on(provider, "scalable.c").argument("3").output().unwrap_or_else(|why| panic!("{why}"));
    let output = output.expect("it needs nothing");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("3 threads over {provider}\n"));
}

#[test]
fn threads_have_contexts() {
    scalable("tcp");
}

#[test]
fn threads_have_contexts_within_a_host() {
    scalable("shm");
}

fn token(provider: &str, processes: &str) {
    let output = on(provider, "token.c").argument(processes).output().unwrap_or_else(|why| panic!("{why}"));
    let output = output.expect("it needs nothing");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("5 rounds of {processes} over {provider}\n"));
}

#[test]
fn a_token_goes_around_by_itself() {
    token("tcp", "4");
}

#[test]
fn a_token_goes_around_within_a_host() {
    token("shm", "6");
}

#[test]
fn one_process_passes_the_token_to_itself() {
    token("tcp", "1");
}

fn monitor(provider: &str) {
    let run = on(provider, "monitor.c").argument("2000");
    let output = run.output().unwrap_or_else(|why| panic!("{why}")).expect("it needs nothing");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("2000 messages over {provider}\n"));
}

#[test]
fn messages_signal_a_condition() {
    monitor("tcp");
}

#[test]
fn messages_signal_a_condition_within_a_host() {
    monitor("shm");
}

fn buffered(provider: &str) {
    let output = on(provider, "buffered.c").argument("40").output().unwrap_or_else(|why| panic!("{why}"));
    let output = output.expect("it needs nothing");
    let expected = format!("40 messages over {provider}: 30 read in place, 10 claimed\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn messages_are_read_in_place() {
    buffered("tcp");
}

#[test]
fn messages_are_read_in_place_within_a_host() {
    buffered("shm");
}

fn allreduce(provider: &str, processes: &str) {
    let output = on(provider, "allreduce.c").argument(processes).output().unwrap_or_else(|why| panic!("{why}"));
    let output = output.expect("it needs nothing");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("{processes} processes have the sum over {provider}\n")
    );
}

#[test]
fn processes_sum_their_ranks() {
    allreduce("tcp", "5");
}

#[test]
fn processes_sum_their_ranks_within_a_host() {
    allreduce("shm", "4");
}

/// A program without arguments that prints one line.
fn prints(provider: &str, program: &str, line: &str) {
    let output = on(provider, program).output().unwrap_or_else(|why| panic!("{why}"));
    let output = output.expect("it needs nothing");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{line} over {provider}\n"));
}

#[test]
fn a_window_is_written_and_read() {
    prints("tcp", "window.c", "a window");
}

#[test]
fn a_window_is_written_and_read_within_a_host() {
    prints("shm", "window.c", "a window");
}

#[test]
fn records_are_durable() {
    prints("tcp", "journal.c", "16 records");
}

#[test]
fn records_are_durable_within_a_host() {
    prints("shm", "journal.c", "16 records");
}

#[test]
fn an_inbox_knows_its_senders() {
    prints("tcp", "inbox.c", "an inbox for 3");
}

#[test]
fn an_inbox_knows_its_senders_within_a_host() {
    prints("shm", "inbox.c", "an inbox for 3");
}

#[test]
fn datagrams_reach_a_group() {
    prints("udp", "group.c", "a group of 2");
}

fn start(run: &Run) -> Child {
    let mut command = run.command();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Waits for a process, which its time limit ends; returns the rest of its output.
fn finish(what: &str, child: Child) -> String {
    let output = child.wait_with_output().unwrap_or_else(|error| panic!("{what}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{out}\n{err}", output.status);
    assert!(err.is_empty(), "{what} prints errors: {err}");
    out.into_owned()
}

/// A server and the address that it prints. At the end of its output the address is empty.
fn serve(provider: &str) -> (Child, String) {
    let mut server = start(&on(provider, "echo.c"));
    let mut address = String::new();
    // One byte at a time: nothing that follows the line may be lost in a buffer.
    let out = server.stdout.as_mut().expect("a pipe");
    BufReader::with_capacity(1, out.by_ref()).read_line(&mut address).expect("text");
    (server, address.trim_end().to_owned())
}

/// Runs a server and a client; returns the address that the server had.
fn echo(provider: &str) -> String {
    let (server, address) = serve(provider);
    if address.is_empty() {
        finish("the server", server);
        panic!("the server printed no address");
    }
    // The longest line needs more than one message. The last one does not end.
    let text = format!("one\nand two\n\n{}\nthe last", "long ".repeat(100));
    let mut client = start(&on(provider, "echo.c").argument(&address));
    let written = client.stdin.take().expect("a pipe").write_all(text.as_bytes());
    assert_eq!(finish("the client", client), text);
    written.expect("the client reads all of its input");
    assert_eq!(finish("the server", server), "");
    address
}

#[test]
fn lines_come_back() {
    drop(echo("tcp"));
}

#[test]
fn lines_come_back_within_a_host() {
    drop(echo("shm"));
}

/// A client whose server is gone fails with a reason, long before its time limit.
fn without_server(provider: &str) {
    let address = echo(provider);
    let why = on(provider, "echo.c").argument(address).output().expect_err("there is no server");
    assert!(why.contains("\nconnect to ") && why.contains(": Connection refused\n"), "{why}");
}

#[test]
fn a_client_without_a_server_fails_with_a_reason() {
    without_server("tcp");
}

#[test]
fn a_client_without_a_server_fails_with_a_reason_within_a_host() {
    without_server("shm");
}
