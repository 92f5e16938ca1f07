//! C programs against the built library. `OFI_RDMA_ROWS` names a folder with the answers that
//! `cargo xtask rdma-vm` collected in its guest; `OFI_RDMA_ROWS_WRITE=1` also writes the table.

use ofi_harness::{Program, Run, is_instrumented, is_sanitized, missing, rdma};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn testing() -> PathBuf {
    Path::new(HERE).join("../../testing/rdma")
}

/// A program in `tests/c`.
fn program(name: &str) -> Program<'static> {
    Program::new(Path::new(HERE).join("tests/c").join(name)).include(Path::new(HERE).join("include"))
}

fn compiled(program: &Program<'_>) -> PathBuf {
    program.compile().unwrap_or_else(|why| panic!("{why}"))
}

/// Compiles a program in `tests/c`, linked to the library alone; returns its path.
fn compile(name: &str) -> PathBuf {
    compiled(&program(name).link(rdma()))
}

fn lists() -> PathBuf {
    compile("lists.c")
}

/// Runs a program with a time limit in a namespace with the tests' names and addresses. `None` if
/// the namespace cannot be made.
fn inside(program: &Path, arguments: &[&str]) -> Option<Output> {
    let namespace = [testing().join("namespace.sh"), testing().join("etc")];
    let run = Run::new(program, 120).arguments(arguments).on(rdma()).inside(namespace);
    run.output().unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn an_instrumented_library_is_one() {
    assert_eq!(is_instrumented(rdma()), is_sanitized());
}

#[test]
fn exactly_the_two_names_are_visible_at_their_node() {
    let file = rdma().file();
    let output = Command::new("objdump").args(["-T", "-p"]).arg(file).output().expect("objdump");
    let text = String::from_utf8_lossy(&output.stdout);
    let own = text.lines().filter(|line| line.starts_with('0') && !line.contains("*UND*"));
    let mut names: Vec<String> = own
        .filter(|line| line.contains(" DF "))
        .map(|line| line.split_whitespace().rev().take(2).collect::<Vec<_>>().join("@"))
        .collect();
    names.sort();
    assert_eq!(names, ["rdma_freeaddrinfo@RDMACM_1.0", "rdma_getaddrinfo@RDMACM_1.0"]);
    assert!(text.lines().any(|line| line.contains("SONAME") && line.ends_with(" librdmaaddrinfo.so.1")));
}

#[test]
fn lists_of_others_are_left_to_them() {
    let other = compiled(&program("foreign.c").named("libother").shared().argument("-DOTHER"));
    // Linked after ours, as librdmacm is when ours is preloaded.
    inside(&compiled(&program("foreign.c").link(rdma()).argument(other)), &[]);
}

/// Failures are logged, and a log line that cannot be written does no harm.
#[test]
fn failures_are_explained_if_the_log_level_asks_for_it() {
    let explain = |to: &str| {
        let line = format!("FI_LOG_LEVEL=warn exec {} {to}", lists().display());
        inside(Path::new("/bin/sh"), &["-c", &line])
    };
    let Some(output) = explain("") else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("rdma_getaddrinfo: the service \"65536\" is not a port: the maximum is 65535 (EAI_SERVICE)"),
        "{said}"
    );
    explain("2>/dev/full");
    explain("2>&-");
}

/// The same assertions hold for each header alone and for both in any order.
#[test]
fn the_header_is_that_of_librdmacm() {
    let there = Path::new("/usr/include/rdma/rdma_cma.h").exists();
    if !there {
        missing("librdmacm-dev: the header is only compared with numbers");
    }
    let source = Path::new(HERE).join("tests/c/layout.c");
    let (ours, theirs, verbs) = ("rdma/rdma_addrinfo.h", "rdma/rdma_cma.h", "infiniband/verbs.h");
    let alone = "-DRDMA_ADDRINFO_ALONE";
    let ways: &[(&[&str], &[&str])] = &[
        (&[alone], &[ours]),
        (&[], &[ours]),
        (&[], &[theirs]),
        (&[], &[ours, theirs]),
        (&[], &[theirs, ours]),
        (&[], &[ours, verbs]),
        (&[], &[verbs, ours]),
        (&[alone], &[theirs, ours]),
        (&[alone], &[verbs, ours]),
    ];
    for (defines, headers) in ways.iter().filter(|(_, headers)| there || **headers == [ours]) {
        for compiler in [&["cc", "-std=gnu11"][..], &["cc", "-std=c11"], &["c++", "-std=c++17", "-x", "c++"]] {
            let mut cc = Command::new(compiler[0]);
            cc.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"]);
            cc.arg(Path::new(HERE).join("include")).args(*defines);
            cc.args(headers.iter().flat_map(|header| ["-include", header])).arg(&source);
            assert!(cc.status().expect("a compiler").success(), "{cc:?}");
        }
    }
}

#[test]
fn lists_are_as_the_manual_says() {
    inside(&lists(), &[]);
}

#[test]
fn a_lack_of_memory_is_an_answer() {
    // A program cannot replace AddressSanitizer's allocator.
    if !is_sanitized() {
        inside(&compile("nomem.c"), &[]);
    }
}

#[test]
fn children_of_forks_can_free() {
    inside(&compile("forks.c"), &[]);
}

#[test]
fn no_input_does_harm() {
    inside(&compile("fuzz.c"), &["200000"]);
}

/// Name, question, answer.
type Row = [String; 3];

fn rows(text: &str) -> Vec<Row> {
    text.lines()
        .map(|line| line.split('\t').map(|word| word.trim().to_owned()).collect::<Vec<_>>().try_into().unwrap())
        .collect()
}

/// A row of the table, by column.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    name: String,
    question: String,
    theirs: String,
    ours: String,
    why: String,
}

const HEAD: &str = "# 99 questions, and the answers of librdmacm 44 and of librdmaaddrinfo

Both were asked in the guest of `cargo xtask rdma-vm`, which has a software RDMA device (rxe0 on 10.9.0.1 and fd09::1). The
tests compare both columns with what is answered there, and ours also with what is answered on a machine without a device.
An address behind *from* is the source, one behind *to* the destination. The last column names the section of
[README.md](README.md) that says why answers differ; it is empty where they are equal.

| what | node, service, hints (flags, family, queue pair type, port space) | librdmacm 44 | librdmaaddrinfo | why |
|---|---|---|---|---|
";

fn read_table(text: &str) -> Vec<Said> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")).skip(1);
    lines
        .map(|line| {
            let cells: [String; 5] =
                line.split(" | ").map(|cell| cell.trim().to_owned()).collect::<Vec<_>>().try_into().unwrap();
            let [name, question, theirs, ours, why] = cells;
            Said { name, question, theirs, ours, why }
        })
        .collect()
}

fn write_table(path: &Path, table: &[Said]) {
    let mut text = HEAD.to_owned();
    for Said { name, question, theirs, ours, why } in table {
        writeln!(text, "| {name} | {question} | {theirs} | {ours} | {why} |").unwrap();
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn answers_are_those_of_the_table() {
    let path = Path::new(HERE).join("../ROWS.md");
    let mut table = read_table(&std::fs::read_to_string(&path).unwrap_or_default());
    let (ours, theirs) = match std::env::var_os("OFI_RDMA_ROWS") {
        Some(folder) => {
            let read = |name| rows(&std::fs::read_to_string(Path::new(&folder).join(name)).unwrap());
            (read("ours.rows"), Some(read("librdmacm.rows")))
        }
        None => {
            let program = Program::new(testing().join("rows.c")).include(Path::new(HERE).join("include"));
            let soname = rdma().file();
            let Some(output) = inside(&compiled(&program), &[soname.to_str().unwrap()]) else { return };
            (rows(&String::from_utf8_lossy(&output.stdout)), None)
        }
    };
    if let (Some(theirs), Some(_)) = (&theirs, std::env::var_os("OFI_RDMA_ROWS_WRITE")) {
        let why: BTreeMap<String, String> = table.drain(..).map(|said| (said.name, said.why)).collect();
        let both = ours.iter().zip(theirs);
        table.extend(both.map(|([name, question, ours], [.., theirs])| Said {
            name: name.clone(),
            question: question.clone(),
            theirs: theirs.clone(),
            ours: ours.clone(),
            why: if ours == theirs { String::new() } else { why.get(name).cloned().unwrap_or_default() },
        }));
        write_table(&path, &table);
    }
    assert_eq!(table.len(), 99);
    assert_eq!(ours.len(), 99);
    for (said, [name, question, answer]) in table.iter().zip(&ours) {
        assert_eq!([&said.name, &said.question, &said.ours], [name, question, answer]);
    }
    for (said, [name, question, answer]) in table.iter().zip(theirs.iter().flatten()) {
        assert_eq!([&said.name, &said.question, &said.theirs], [name, question, answer]);
    }
    let readme = std::fs::read_to_string(Path::new(HERE).join("../README.md")).unwrap();
    for said in &table {
        assert_eq!(said.ours == said.theirs, said.why.is_empty(), "a reason, or none: {said:?}");
        for reason in said.why.split(", ").filter(|reason| !reason.is_empty()) {
            assert!(readme.contains(&format!("\n### {reason}\n")), "README.md does not say why: {reason}");
        }
    }
}
