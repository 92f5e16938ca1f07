//! Random hints: each info that they bring, once opened, keeps what it promises. The program
//! `c/promises.c` opens it and carries out each offered operation once.
//! The hints are the same in each run; `OFI_PROMISES=n` tries n others, from a seed that it prints,
//! and `OFI_PROMISES_SEED=s` sets the seed.

use core::fmt;
use ofi_harness::{Program, Run, fabric};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Hints tried by default.
const CASES: u32 = 60;
/// Seconds for all infos of one query; the program itself limits each operation.
const SECONDS: u32 = 60;

/// Versions that changed a rule of discovery, and the newest.
const VERSIONS: &[(u64, u64)] = &[
    (1, 0),
    (1, 1),
    (1, 3),
    (1, 4),
    (1, 5),
    (1, 8),
    (1, 9),
    (1, 14),
    (1, 17),
    (1, 18),
    (1, 20),
    (1, 21),
    (1, 22),
    (2, 0),
    (2, 1),
    (2, 2),
    (2, 3),
    (2, 4),
    (2, 5),
    (2, 6),
];

/// The bits of capabilities in a header of 2.6. To callers of 1.7 to 1.20 bit 48 is
/// FI_VARIABLE_MSG.
const CAPS: &[u32] = &[
    1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 16, 17, 20, 21, 25, 44, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58,
    59,
];
/// The bits of operations that default flags may have.
const FLAGS: &[u32] = &[5, 16, 17, 18, 20, 21, 24, 25, 26, 27, 28, 30, 31];
const ORDERS: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 33, 34, 35, 36, 37, 38, 39];
const MR_MODES: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
/// The bits of modes; bit 51 is FI_BUFFERED_RECV to callers of 1.7 to 1.22.
const MODES: &[u32] = &[51, 52, 53, 54, 55, 56, 57, 58, 59];

/// What a field may hold.
enum Values {
    /// Some of these bits.
    Bits(&'static [u32]),
    /// One of these numbers.
    Of(&'static [u64]),
}

const SMALL: Values = Values::Of(&[0, 1, 2, 3, 4, 7, 8, 16, 64, 1024, 4096]);
const COUNTS: Values = Values::Of(&[0, 1, 2, 3, 4, 16, 17, 256, 257, u64::MAX]);
const LONG: Values = Values::Of(&[0, 1, 8, 1400, 4096, 65_000, 65_536, 1 << 20, 1 << 32, u64::MAX]);

const FIELDS: &[(&str, Values)] = &[
    ("cq.format", Values::Of(&[1, 2, 3, 4])),
    ("cq.wait_obj", Values::Of(&[0, 1, 3, 4])),
    ("cq.selective", Values::Of(&[0, 1])),
    ("mode", Values::Bits(MODES)),
    ("addr_format", Values::Of(&[0, 1, 2, 3, 9])),
    ("tx.caps", Values::Bits(CAPS)),
    ("tx.mode", Values::Bits(MODES)),
    ("tx.op_flags", Values::Bits(FLAGS)),
    ("tx.msg_order", Values::Bits(ORDERS)),
    ("tx.comp_order", Values::Of(&[0, 1])),
    ("tx.inject_size", SMALL),
    ("tx.size", SMALL),
    ("tx.iov_limit", Values::Of(&[0, 1, 2, 4, 7, 8, 9])),
    ("tx.rma_iov_limit", Values::Of(&[0, 1, 2, 4, 7, 8, 9])),
    ("tx.tclass", Values::Of(&[0, 1, 2, 3, 4, 8, 0x100, 0x12e])),
    ("rx.caps", Values::Bits(CAPS)),
    ("rx.mode", Values::Bits(MODES)),
    ("rx.op_flags", Values::Bits(FLAGS)),
    ("rx.msg_order", Values::Bits(ORDERS)),
    ("rx.comp_order", Values::Of(&[0, 1])),
    ("rx.total_buffered_recv", LONG),
    ("rx.size", SMALL),
    ("rx.iov_limit", Values::Of(&[0, 1, 2, 4, 7, 8, 9])),
    ("ep.protocol", Values::Of(&[0, 1, 2, 3, 5, 8, 9, 10, 12, 16])),
    ("ep.protocol_version", Values::Of(&[0, 1, 2])),
    ("ep.max_msg_size", LONG),
    ("ep.msg_prefix_size", Values::Of(&[0, 8])),
    ("ep.max_order_raw_size", LONG),
    ("ep.max_order_war_size", LONG),
    ("ep.max_order_waw_size", LONG),
    ("ep.mem_tag_format", Values::Of(&[0, 1, 2, 0xff, 0xaaaa, 0xffff_0000, 0xaaaa_aaaa_aaaa_aaaa, u64::MAX])),
    ("ep.tx_ctx_cnt", COUNTS),
    ("ep.rx_ctx_cnt", COUNTS),
    ("domain.threading", Values::Of(&[0, 1, 2, 3, 4, 5, 6])),
    ("domain.control_progress", Values::Of(&[0, 1, 2, 3])),
    ("domain.data_progress", Values::Of(&[0, 1, 2, 3])),
    ("domain.resource_mgmt", Values::Of(&[0, 1, 2])),
    ("domain.av_type", Values::Of(&[0, 1, 2])),
    ("domain.mr_mode", Values::Bits(MR_MODES)),
    ("domain.mr_key_size", Values::Of(&[0, 1, 2, 4, 8])),
    ("domain.cq_data_size", Values::Of(&[0, 1, 2, 4, 8])),
    ("domain.cq_cnt", SMALL),
    ("domain.ep_cnt", SMALL),
    ("domain.tx_ctx_cnt", SMALL),
    ("domain.rx_ctx_cnt", SMALL),
    ("domain.max_ep_tx_ctx", COUNTS),
    ("domain.max_ep_rx_ctx", COUNTS),
    ("domain.max_ep_stx_ctx", COUNTS),
    ("domain.max_ep_srx_ctx", COUNTS),
    ("domain.cntr_cnt", SMALL),
    ("domain.mr_iov_limit", SMALL),
    ("domain.caps", Values::Bits(CAPS)),
    ("domain.mode", Values::Bits(MODES)),
    ("domain.max_err_data", SMALL),
    ("domain.mr_cnt", SMALL),
    ("domain.tclass", Values::Of(&[0, 1, 2, 3, 4, 8, 0x100, 0x12e])),
];

/// An argument of the program.
#[derive(Clone, PartialEq, Eq)]
struct Argument(String);

impl fmt::Debug for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Argument {
    fn number(name: &str, value: u64) -> Self {
        Self(format!("{name}={value:#x}"))
    }
}

fn sum(bits: &[u32]) -> u64 {
    bits.iter().fold(0, |all, bit| all | 1 << bit)
}

/// Mostly few bits, as more of them rule out every provider.
fn some_bits(bits: &'static [u32]) -> BoxedStrategy<u64> {
    prop_oneof![
        4 => prop::sample::subsequence(bits, 0..=3).prop_map(|some| sum(&some)),
        1 => prop::sample::subsequence(bits, 0..=bits.len()).prop_map(|some| sum(&some)),
        1 => Just(sum(bits)),
    ]
    .boxed()
}

fn field() -> impl Strategy<Value = Argument> {
    prop::sample::select((0..FIELDS.len()).collect::<Vec<_>>()).prop_flat_map(|at| {
        let (name, values) = &FIELDS[at];
        let value = match values {
            Values::Bits(bits) => some_bits(bits),
            Values::Of(numbers) => prop::sample::select(*numbers).boxed(),
        };
        value.prop_map(|value| Argument::number(name, value))
    })
}

/// Capabilities: none, a few, or those that make an endpoint of each kind.
fn caps() -> impl Strategy<Value = u64> {
    let kinds = prop::sample::subsequence(&[1u32, 2, 3, 4][..], 1..=3).prop_map(|some| sum(&some));
    let besides = prop::sample::subsequence(CAPS, 0..=4).prop_map(|some| sum(&some));
    prop_oneof![
        1 => Just(0),
        4 => (kinds, besides).prop_map(|(kinds, besides)| kinds | besides),
        1 => some_bits(CAPS),
    ]
}

fn hints() -> impl Strategy<Value = Vec<Argument>> {
    let version =
        prop::sample::select(VERSIONS).prop_map(|(major, minor)| Argument::number("api", major << 16 | minor));
    let provider = prop::sample::select(&["", "tcp", "tcp;ofi_rxm", "shm", "udp"][..])
        .prop_map(|name| (!name.is_empty()).then(|| Argument(format!("provider={name}"))));
    let kind = prop::option::of((1u64..=3).prop_map(|kind| Argument::number("ep.type", kind)));
    let caps = caps().prop_map(|caps| Argument::number("caps", caps));
    let null = prop::option::weighted(0.1, (0u64..16).prop_map(|which| Argument(format!("null={which}"))));
    let fields = prop::collection::vec(field(), 0..6);
    (version, provider, kind, caps, null, fields).prop_map(|(version, provider, kind, caps, null, fields)| {
        let first = [Some(version), Some(caps), provider, kind, null];
        first.into_iter().flatten().chain(fields).collect()
    })
}

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = Program::new(here.join("tests/c/promises.c")).include(here.join("include")).link(fabric());
        program.compile().unwrap_or_else(|why| panic!("{why}"))
    })
}

/// Counts the infos that fi_getinfo returns for the arguments. The program checks that each keeps
/// its promises.
///
/// # Errors
/// What the program prints about an info that breaks one.
fn infos(arguments: &[&str]) -> Result<u32, String> {
    let run = Run::new(program(), SECONDS).arguments(arguments).on(fabric()).variable("FI_LOG_LEVEL", "warn");
    let output = run.output()?.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    output.as_deref().and_then(|text| text.trim().parse().ok()).ok_or_else(|| format!("it printed {output:?}"))
}

#[test]
fn what_random_hints_bring_keeps_its_promises() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let cases = number("OFI_PROMISES").map(|cases| cases.try_into().expect("few hints"));
    let seed = number("OFI_PROMISES_SEED").unwrap_or_else(|| cases.map_or(1, |_| RandomState::new().hash_one(0)));
    println!("OFI_PROMISES_SEED={seed}");
    let (cases, rng_seed) = (cases.unwrap_or(CASES), RngSeed::Fixed(seed));
    let config = Config { cases, rng_seed, failure_persistence: None, max_shrink_iters: 300, ..Config::default() };
    let result = TestRunner::new(config).run(&hints(), |arguments| {
        let words: Vec<&str> = arguments.iter().map(|argument| argument.0.as_str()).collect();
        infos(&words).map(drop).map_err(TestCaseError::fail)
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, arguments)) => panic!("{arguments:?}: {}", why.message()),
        Err(TestError::Abort(why)) => panic!("{}", why.message()),
    }
}

/// Shrunk hints of infos that once broke a promise.
const FOUND: &[(&str, &[&str])] = &[
    ("tagged receives were refused because of a default for untagged ones", &["caps=0xa", "rx.op_flags=0x10000"]),
    ("the same without untagged messages", &["caps=0x8", "rx.op_flags=0x10000"]),
    ("fi_barrier refused a default FI_FENCE", &["caps=0x50", "tx.op_flags=0x200000"]),
    (
        "partners of contexts joined a queue that they share twice",
        &["caps=0x100008", "ep.tx_ctx_cnt=2", "ep.rx_ctx_cnt=3"],
    ),
];

#[test]
fn hints_whose_infos_once_broke_a_promise_bring_good_ones() {
    for (what, arguments) in FOUND {
        let found = infos(arguments).unwrap_or_else(|why| panic!("{what}: {why}"));
        assert!(found > 0, "{what}: {arguments:?} bring no info");
    }
}

/// Hints that every machine has an info for.
const PLAIN: &[&[&str]] = &[
    &["caps=0"],
    &["null=15"],
    &["caps=0x1a"],
    &["caps=0x2", "ep.type=1"],
    &["caps=0x2", "ep.type=2"],
    &["caps=0x8", "ep.type=3", "api=0x10000"],
    &["caps=0x8", "provider=tcp", "rx.msg_order=0x100", "tx.msg_order=0x100"],
    &["caps=0xe", "provider=tcp;ofi_rxm", "domain.mr_mode=0x34"],
    &["caps=0x1e", "provider=shm", "domain.threading=1", "domain.data_progress=1"],
    &["caps=0x2", "provider=udp"],
];

#[test]
fn plain_hints_bring_infos() {
    for arguments in PLAIN {
        let found = infos(arguments).unwrap_or_else(|why| panic!("{arguments:?}: {why}"));
        assert!(found > 0, "{arguments:?} bring no info");
    }
}

/// Capabilities whose operations random hints seldom bring together: FI_TRIGGER with all that it
/// may start, FI_RMA_PMEM, FI_BUFFERED_RECV and FI_VARIABLE_MSG.
const SELDOM: &[&[&str]] = &[
    &["caps=0x10001e"],
    &["caps=0x10001e", "cq.selective=1"],
    &["caps=0x100008", "ep.rx_ctx_cnt=3", "ep.tx_ctx_cnt=2"],
    &["caps=0x2000000000006"],
    &["caps=0x200000010001e", "ep.rx_ctx_cnt=0xffffffffffffffff"],
    &["caps=0x10001e", "mode=0x8000000000000", "api=0x10011"],
    &["caps=0x8", "mode=0x8000000000000", "api=0x10007", "ep.rx_ctx_cnt=4"],
    &["caps=0x100000010001e", "api=0x10011", "cq.selective=1"],
    &["caps=0x1000000000002", "api=0x10014", "cq.format=1"],
];

#[test]
fn operations_that_random_hints_seldom_bring_together_are_carried_out() {
    for provider in ["tcp", "tcp;ofi_rxm", "shm"].map(|name| format!("provider={name}")) {
        for arguments in SELDOM {
            let all: Vec<&str> = arguments.iter().copied().chain([provider.as_str()]).collect();
            let found = infos(&all).unwrap_or_else(|why| panic!("{all:?}: {why}"));
            assert!(found > 0, "{all:?} bring no info");
        }
    }
}
