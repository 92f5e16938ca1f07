//! The programs of `examples/rust`, over tcp and over shm: each does what it says, as processes.
#![cfg(all(feature = "tcp", feature = "shm"))]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Builds the examples once, for runs of this test alone.
fn program(name: &str) -> PathBuf {
    static BUILT: Mutex<bool> = Mutex::new(false);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    // target/debug/deps/this-test
    let this = std::env::current_exe().unwrap();
    let folder = this.parent().and_then(|deps| deps.parent()).unwrap().join("examples");
    if !*built {
        let target = folder.parent().and_then(|debug| debug.parent()).unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "-p", "ofi", "--examples", "--features", "tokio", "--quiet", "--target-dir"]).arg(target);
        assert!(cargo.status().unwrap().success());
        *built = true;
    }
    folder.join(name)
}

/// A running program, killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn start(provider: &str, name: &str, arguments: &[&str]) -> Running {
    let mut command = Command::new(program(name));
    command.args(arguments).env("FI_PROVIDER", provider).env("FI_TCP_IFACE", "lo");
    Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

impl Running {
    /// The next line that it prints.
    fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        BufReader::new(self.0.stdout.take().unwrap()).lines().map_while(Result::ok)
    }

    fn input(&mut self, text: &str) {
        self.0.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Its output, after it has ended well.
    fn end(mut self) -> String {
        drop(self.0.stdin.take());
        let (done, outcome) = mpsc::channel();
        let (stdout, stderr) = (self.0.stdout.take(), self.0.stderr.take());
        std::thread::spawn(move || {
            let text = |from: Option<String>| from.unwrap_or_default();
            let errors = std::thread::spawn(move || stderr.and_then(|from| std::io::read_to_string(from).ok()));
            let output = stdout.and_then(|from| std::io::read_to_string(from).ok());
            done.send((text(output), text(errors.join().unwrap())))
        });
        let (output, errors) = outcome.recv_timeout(LIMIT).expect("the program ended in time");
        assert!(self.0.wait().unwrap().success(), "{output}{errors}");
        output
    }
}

fn over_each(test: impl Fn(&str)) {
    ["tcp", "shm"].into_iter().for_each(test);
}

#[test]
fn hello_greets() {
    over_each(|provider| assert_eq!(start(provider, "hello", &[]).end(), "hello from the first endpoint\n"));
}

#[test]
fn echo_answers() {
    over_each(|provider| {
        let mut server = start(provider, "echo", &[]);
        let addr = server.lines().next().unwrap();
        assert_eq!(start(provider, "echo", &[&addr, "one", "two"]).end(), "one\ntwo\nbye\n");
        server.end();
    });
}

#[test]
fn the_key_value_store_survives_restarts_of_its_server() {
    over_each(|provider| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let mut server = start(provider, "kv", &[path]);
        let addr = server.lines().next().unwrap();
        let mut client = start(provider, "kv", &["set", &addr]);
        let mut olds = client.lines();
        client.input("1 10\n513 20\n1 11\n");
        assert_eq!(olds.by_ref().take(3).collect::<Vec<_>>(), ["0", "0", "10"]);
        // Another client stops the server, which writes the file; a new one serves it again.
        start(provider, "kv", &["set", &addr]).end();
        server.end();
        let mut server = start(provider, "kv", &[path, &addr]);
        assert_eq!(server.lines().next().unwrap(), addr);
        client.input("1 12\n513 21\n");
        assert_eq!(olds.by_ref().take(2).collect::<Vec<_>>(), ["11", "20"]);
        client.end();
        server.end();
    });
}

/// So what the tests above run is the program as the guide prints it.
#[test]
fn the_guide_prints_the_key_value_store_in_at_most_60_lines() {
    let guide = include_str!("../../docs/guide/README.md");
    let (_, section) = guide.split_once("## A key-value store in 60 lines\n").unwrap();
    let (_, program) = section.split_once("```rust,no_run\n").unwrap();
    let (program, _) = program.split_once("```\n").unwrap();
    assert_eq!(program, include_str!("../../examples/rust/kv.rs"));
    assert!(program.lines().count() <= 60);
}

#[test]
fn allreduce_sums() {
    over_each(|provider| drop(start(provider, "allreduce", &["4"]).end()));
}

#[test]
fn the_work_queue_hands_out_every_task() {
    over_each(|provider| {
        let mut server = start(provider, "queue", &["300"]);
        let mut lines = server.lines();
        let addr = lines.next().unwrap();
        let worker = start(provider, "queue", &[&addr]);
        assert_eq!(lines.next().unwrap(), (1..=300u64).map(|number| number * number).sum::<u64>().to_string());
        worker.end();
        server.end();
    });
}

#[test]
fn a_file_is_copied() {
    over_each(|provider| {
        let (from, to) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let bytes: Vec<u8> = (0..=255u8).cycle().take((10 << 20) + 77).collect();
        std::fs::write(from.path(), &bytes).unwrap();
        let mut receiver = start(provider, "copy", &[to.path().to_str().unwrap()]);
        let addr = receiver.lines().next().unwrap();
        start(provider, "copy", &[from.path().to_str().unwrap(), &addr]).end();
        receiver.end();
        assert!(std::fs::read(to.path()).unwrap() == bytes);
    });
}

#[test]
fn the_service_answers_and_stops() {
    over_each(|provider| {
        let mut service = start(provider, "service", &[]);
        let addr = service.lines().next().unwrap();
        assert_eq!(start(provider, "service", &[&addr, "loud"]).end(), "LOUD\n");
        assert_eq!(start(provider, "service", &[&addr, "stop"]).end(), "STOP\n");
        service.end();
    });
}
