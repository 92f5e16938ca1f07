//! Every operation on every datatype that C has, against a C program.

use super::*;
use ofi_harness::Program;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Cases for each operation on each datatype.
const CASES: usize = 1000;

/// Random numbers (xorshift64), the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }
}

/// How a number lies in memory, for datatypes that are made of such.
struct Layout {
    /// Bytes of a number.
    size: usize,
    /// Bits of an integer, or of the significand behind the point with what is stored before it.
    low: u32,
    /// Bits of the exponent; 0 for integers.
    exponent: u32,
}

fn layout(datatype: Datatype) -> Layout {
    let (size, low, exponent) = match datatype {
        Datatype::Float | Datatype::FloatComplex => (4, 23, 8),
        Datatype::Double | Datatype::DoubleComplex => (8, 52, 11),
        Datatype::LongDouble | Datatype::LongDoubleComplex => (16, 64, 15),
        Datatype::Float16 => (2, 10, 5),
        Datatype::Bfloat16 => (2, 7, 8),
        Datatype::Int8 | Datatype::Uint8 | Datatype::Int16 | Datatype::Uint16 | Datatype::Int32 => {
            (datatype.size(), 0, 0)
        }
        Datatype::Uint32 | Datatype::Int64 | Datatype::Uint64 | Datatype::Int128 | Datatype::Uint128 => {
            (datatype.size(), 0, 0)
        }
        Datatype::Float8E4M3 | Datatype::Float8E5M2 => unreachable!("C has no such type"),
    };
    Layout { size, low, exponent }
}

impl Layout {
    /// Ones up to a bit.
    fn ones(count: u32) -> u128 {
        1u128.checked_shl(count).unwrap_or(0).wrapping_sub(1)
    }

    /// A random pattern in which runs of equal bits are likely.
    fn runs(random: &mut Random) -> u128 {
        let any = u128::from(random.next()) << 64 | u128::from(random.next());
        let at = |random: &mut Random| u32::try_from(random.below(128)).unwrap();
        match random.below(4) {
            0 => any,
            1 => Self::ones(at(random)),
            2 => 1 << at(random),
            _ => Self::ones(at(random)) & !Self::ones(at(random)) ^ (any & 1),
        }
    }

    /// A random number whose exponent is near `near`'s, if any.
    fn number(&self, random: &mut Random, near: Option<u128>) -> u128 {
        if self.exponent == 0 {
            return Self::runs(random);
        }
        let top = Self::ones(self.exponent);
        let near = near.map(|near| near >> self.low & top);
        let exponent = match (random.below(8), near) {
            (0, _) => 0,
            (1, _) => top,
            (2, _) => 1,
            (3 | 4, _) | (_, None) => u128::from(random.next()) & top,
            (_, Some(near)) => {
                let apart = random.below(2 * usize::try_from(self.low).unwrap() + 8) as u128;
                (near + apart).saturating_sub(u128::from(self.low) + 4).min(top)
            }
        };
        let mut significand = Self::runs(random) & Self::ones(self.low);
        if self.size == 16 && exponent > 0 && random.below(16) > 0 {
            significand |= 1 << 63;
        }
        if random.below(8) == 0 {
            significand &= 1 << 63;
        }
        let sign = u128::from(random.next() & 1) << (self.low + self.exponent);
        sign | exponent << self.low | significand
    }

    /// A random element, close to another if there is one.
    fn element(&self, datatype: Datatype, random: &mut Random, near: Option<&[u8]>) -> Vec<u8> {
        let parts = datatype.size() / self.size;
        let part = |at: usize| {
            let near = near.map(|near| number(&near[at * self.size..][..self.size]));
            let number = match near {
                Some(near) if random.below(6) == 0 => near,
                near => self.number(random, near),
            };
            number.to_ne_bytes()[..self.size].to_vec()
        };
        (0..parts).flat_map(part).collect()
    }

    /// Whether a number in these bytes is a NaN, or to the x87 as good as one.
    fn is_nan(&self, bits: u128) -> bool {
        let (exponent, significand) = (bits >> self.low & Self::ones(self.exponent), bits & Self::ones(self.low));
        let explicit = if self.size == 16 { 1 << 63 } else { 0 };
        let is_top = exponent == Self::ones(self.exponent);
        self.exponent > 0 && (is_top && significand != explicit || exponent > 0 && significand & explicit != explicit)
    }
}

fn number(bytes: &[u8]) -> u128 {
    let mut all = [0; 16];
    all[..bytes.len()].copy_from_slice(bytes);
    u128::from_ne_bytes(all)
}

struct Case {
    datatype: Datatype,
    op: AtomicOp,
    target: Vec<u8>,
    operand: Vec<u8>,
    compare: Vec<u8>,
}

impl Case {
    fn random(datatype: Datatype, op: AtomicOp, random: &mut Random) -> Self {
        let layout = layout(datatype);
        let target = layout.element(datatype, random, None);
        let operand = layout.element(datatype, random, Some(&target));
        let compare = layout.element(datatype, random, Some(&target));
        Self { datatype, op, target, operand, compare }
    }

    /// As the C program reads it.
    fn request(&self) -> Vec<u8> {
        let mut request = vec![self.datatype as u8, self.op as u8];
        for (at, bytes) in [&self.target, &self.operand, &self.compare].into_iter().enumerate() {
            request.resize(16 + at * MOST, 0);
            request.extend_from_slice(bytes);
        }
        request.resize(16 + 3 * MOST, 0);
        request
    }

    /// Whether the result is as good as C's: the same bits, except for what the format does not
    /// have, and except for the kind of a NaN that was computed.
    fn agrees(&self, ours: &[u8], theirs: &[u8]) -> bool {
        let (layout, computes) =
            (layout(self.datatype), matches!(self.op, AtomicOp::Sum | AtomicOp::Diff | AtomicOp::Prod));
        let significant = if layout.exponent == 0 { 128 } else { layout.low + layout.exponent + 1 };
        ours.chunks(layout.size).zip(theirs.chunks(layout.size)).all(|(ours, theirs)| {
            let [ours, theirs] = [ours, theirs].map(|bytes| number(bytes) & Layout::ones(significant));
            ours == theirs || computes && layout.is_nan(ours) && layout.is_nan(theirs)
        })
    }
}

#[test]
fn every_operation_computes_what_c_does() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/atomics.c");
    let program = Program::new(source).argument("-fwrapv").compile().unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut cases = Vec::new();
    for datatype in Datatype::ALL.into_iter().filter(|it| !matches!(it, Datatype::Float8E4M3 | Datatype::Float8E5M2)) {
        for op in AtomicOp::ALL.into_iter().filter(|op| op.goes_with(datatype)) {
            cases.extend((0..CASES).map(|_| Case::random(datatype, op, &mut random)));
        }
    }
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut answers) = (child.stdin.take().unwrap(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let requests: Vec<u8> = cases.iter().flat_map(Case::request).collect();
            stdin.write_all(&requests).unwrap();
            drop(stdin);
        });
        child.stdout.take().unwrap().read_to_end(&mut answers).unwrap();
    });
    assert!(child.wait().unwrap().success());
    assert_eq!(answers.len(), cases.len() * MOST);
    let pages = Pages::new(1);
    let region = pages.region();
    for (index, (case, answer)) in cases.iter().zip(answers.chunks(MOST)).enumerate() {
        // Aligned, and not.
        let (offset, len) = (64 + index % 2, case.target.len());
        let target = range(&region, offset, len);
        target.write(0, &case.target).unwrap();
        let call = AtomicCall { datatype: case.datatype, op: case.op, operand: &case.operand, compare: &case.compare };
        let mut before = vec![0; len];
        apply(&target, &call, Some(&mut before)).unwrap();
        assert_eq!(before, case.target);
        let (ours, theirs) = (pages.copy(offset, len), &answer[..len]);
        assert!(
            case.agrees(&ours, theirs),
            "{:?} {:?}: target {:02x?}, operand {:02x?}, compare {:02x?}: C {theirs:02x?}, but {ours:02x?}",
            case.datatype,
            case.op,
            case.target,
            case.operand,
            case.compare,
        );
    }
}
