//! C programs against the built library. `OFI_TEST_RDMA_LIBRARY` names another build of it, `OFI_TEST_ASAN=1` says that it
//! is instrumented. `OFI_RDMA_ROWS` names a folder with the answers that `cargo xtask rdma-vm` got in its guest, and
//! `OFI_RDMA_ROWS_WRITE=1` has the table of them written.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn asan() -> bool {
    std::env::var_os("OFI_TEST_ASAN").is_some()
}

/// The folder with the library as loaders look for it.
fn library() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(if asan() { "rdma-asan" } else { "rdma" });
        std::fs::create_dir_all(&dir).unwrap();
        let built = std::env::var_os("OFI_TEST_RDMA_LIBRARY").map(PathBuf::from).unwrap_or_else(|| {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let built = Command::new(cargo).args(["build", "-p", "ofi-rdma-ffi"]).current_dir(HERE).status().unwrap();
            assert!(built.success(), "the library does not build");
            Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("debug/librdmaaddrinfo.so")
        });
        let soname = dir.join("librdmaaddrinfo.so.1");
        std::fs::copy(&built, soname).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
        dir
    })
}

fn testing() -> PathBuf {
    Path::new(HERE).join("../../testing/rdma")
}

fn compiler(source: &Path, out: &Path) -> Command {
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-I"]).arg(Path::new(HERE).join("include"));
    cc.arg(source).arg("-o").arg(out);
    if asan() {
        cc.arg("-fsanitize=address");
    }
    cc
}

fn succeed(mut cc: Command) {
    let status = cc.status().expect("a C compiler");
    assert!(status.success(), "{cc:?}");
}

/// Compiles a program of this folder and links it to the library alone; its path.
fn compile(name: &str) -> PathBuf {
    let out = library().join(name.trim_end_matches(".c"));
    let mut cc = compiler(&Path::new(HERE).join("tests/c").join(name), &out);
    cc.arg(library().join("librdmaaddrinfo.so.1")).arg("-lpthread");
    succeed(cc);
    out
}

/// A program that two tests run: a file that is being written cannot be run.
fn lists() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("lists.c"))
}

/// Runs a program under a time limit where names and addresses are those of the tests. `None`: that cannot be made here.
fn inside(program: &Path, arguments: &[&str]) -> Option<Output> {
    let output = Command::new("timeout")
        .args(["--kill-after=5", "120"])
        .arg(testing().join("namespace.sh"))
        .arg(testing().join("etc"))
        .arg(program)
        .args(arguments)
        .env("LD_LIBRARY_PATH", library())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "no namespace can be made here: {said}");
        eprintln!("skipped: no namespace can be made here: {said}");
        return None;
    }
    assert!(output.status.success(), "{} {arguments:?}: {}\n{said}", program.display(), output.status);
    assert!(!said.contains("no version information"), "the loader warns: {said}");
    Some(output)
}

#[test]
fn an_instrumented_library_is_one() {
    let bytes = std::fs::read(library().join("librdmaaddrinfo.so.1")).unwrap();
    let needle = b"__asan_report_load";
    assert_eq!(bytes.windows(needle.len()).any(|window| window == needle), asan());
}

#[test]
fn exactly_the_two_names_are_visible_at_their_node() {
    let file = library().join("librdmaaddrinfo.so.1");
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
    let source = Path::new(HERE).join("tests/c/foreign.c");
    let (other, program) = (library().join("libother.so"), library().join("foreign"));
    let mut cc = compiler(&source, &other);
    cc.args(["-DOTHER", "-shared", "-fPIC"]);
    succeed(cc);
    let mut cc = compiler(&source, &program);
    cc.arg(library().join("librdmaaddrinfo.so.1")).arg("-L").arg(library()).arg("-lother");
    succeed(cc);
    inside(&program, &[]);
}

/// Refusals are explained, and an explanation that nobody takes does no harm.
#[test]
fn explanations_are_given_to_those_who_listen() {
    let explain = |to: &str| {
        let line = format!("FI_LOG_LEVEL=warn exec {} {to}", lists().display());
        inside(Path::new("/bin/sh"), &["-c", &line])
    };
    let Some(output) = explain("") else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("rdma_getaddrinfo: the service \"65536\" is no port: those end with 65535 (EAI_SERVICE)"),
        "{said}"
    );
    explain("2>/dev/full");
    explain("2>&-");
}

/// The same assertions hold of each header and of both, in any order.
#[test]
fn the_header_is_that_of_librdmacm() {
    let there = Path::new("/usr/include/rdma/rdma_cma.h").exists();
    if !there {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "librdmacm-dev is not installed");
        eprintln!("skipped: librdmacm-dev is not installed, the header is only compared with numbers");
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
            succeed(cc);
        }
    }
}

#[test]
fn lists_are_as_the_manual_says() {
    inside(lists(), &[]);
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

/// What the table says of a row, in its columns.
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
            let program = library().join("rows");
            let mut cc = compiler(&testing().join("rows.c"), &program);
            cc.arg("-ldl");
            succeed(cc);
            let soname = library().join("librdmaaddrinfo.so.1");
            let Some(output) = inside(&program, &[soname.to_str().unwrap()]) else { return };
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
