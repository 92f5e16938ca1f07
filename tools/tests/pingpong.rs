//! Runs `fi_pingpong` and `ofi selftest` as two processes each.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// Kills the process if a test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // After success it has exited, and neither call has an effect.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn pingpong(port: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_fi_pingpong"), "--json", "-c", "-I", "20", port]).args(arguments);
    command
}

/// Operations and sizes of the rows of both sides.
fn rows(arguments: &[&str]) -> [Vec<(String, u64)>; 2] {
    // The waiting side chooses the port: one chosen here could be taken by another connection.
    let mut server = pingpong("-B0", arguments);
    let server = server.arg("-v").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Killed(server.spawn().expect("timeout runs"));
    let mut said = BufReader::new(server.0.stderr.take().expect("it is piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it can be read");
    let port = line.trim().strip_prefix("waits at 0.0.0.0:").unwrap_or_else(|| panic!("the other side says {line:?}"));
    let client = pingpong(&format!("-P{port}"), arguments).arg("127.0.0.1").output().expect("timeout runs");
    let mut text = Vec::new();
    server.0.stdout.take().expect("it is piped").read_to_end(&mut text).expect("it can be read");
    let ended = server.0.wait().expect("it ends");
    line.clear();
    said.read_to_string(&mut line).expect("it can be read");
    assert!(client.status.success(), "{arguments:?}: {}\n{line}", String::from_utf8_lossy(&client.stderr));
    assert!(ended.success(), "{arguments:?}: {line}");
    [text, client.stdout].map(|text| {
        let rows: Vec<Value> = serde_json::from_slice(&text).expect("it is JSON");
        let row = |row: &Value| {
            assert!(row["us_per_transfer"].as_f64().is_some_and(|time| time > 0.0), "{row}");
            Some((row["operation"].as_str()?.to_owned(), row["bytes"].as_u64()?))
        };
        rows.iter().filter_map(row).collect()
    })
}

#[test]
fn pingpong_shows_writes_reads_and_fetch_adds_where_the_endpoints_have_them() {
    let wanted = ["message", "write", "read", "fetch-add"]
        .map(|name| (name.to_owned(), if name == "fetch-add" { 8 } else { 64 }));
    let kinds = [["-p", "tcp", "-e", "rdm"], ["-p", "tcp", "-e", "msg"], ["-p", "shm", "-e", "rdm"]];
    for kind in kinds {
        let [server, client] = rows(&[&kind[..], &["-S", "64"]].concat());
        assert_eq!(client, wanted, "{kind:?}");
        assert_eq!(server, wanted[..1], "{kind:?}: the other side measures");
    }
    let [server, client] = rows(&["-p", "udp", "-e", "dgram", "-S", "64"]);
    assert_eq!((&server, &client[..]), (&client, &wanted[..1]));
}

#[test]
fn the_selftest_has_rows_for_every_operation() {
    let output = Command::new("timeout")
        .args(["100", env!("CARGO_BIN_EXE_ofi"), "selftest", "--json", "--provider", "shm"])
        .output()
        .expect("timeout runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(report["failures"], Value::Array(Vec::new()));
    for operation in ["message", "write", "read", "fetch-add"] {
        let has =
            |row: &Value| row["operation"] == operation && row["time_p50_us"].as_f64().is_some_and(|time| time > 0.0);
        assert!(report["rows"].as_array().is_some_and(|rows| rows.iter().any(has)), "{operation}: {report}");
    }
}
