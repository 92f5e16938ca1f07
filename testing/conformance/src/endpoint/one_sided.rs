//! One-sided operations (fi_rma(3), fi_atomic(3), fi_mr(3)): A accesses memory of B.

use super::pair::{LONG, Pair, content, sizes};
use super::{Case, EndpointMedium, cases};
use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_core::{Cause, Errno, FiAddr, MrAccess, OpFlags};
use ofi_engine::wire::frame::MOST_EAGER;
use ofi_rig::{Finished, Receive, Target};

/// The key of B's memory.
const KEY: u64 = 0xfeed_0000_0000_0001;
const FETCH_ADD: (AtomicKind, AtomicOp, Datatype) = (AtomicKind::Fetch, AtomicOp::Sum, Datatype::Uint64);

pub(super) fn cases<M: EndpointMedium>() -> Vec<Case> {
    cases![&[];
        writes_of_every_size_arrive_whole,
        reads_of_every_size_return_the_memory,
        several_ranges_are_one_operation,
        the_later_of_two_writes_wins,
        a_read_sees_the_writes_before_it_and_none_behind_it,
        a_message_behind_a_write_comes_after_it,
        completion_data_is_reported_without_a_receive,
        injected_writes_leave_no_success,
        a_refused_operation_fails_for_its_initiator_alone,
        a_refused_range_among_others_fails_the_operation,
        many_reads_wait_for_their_turn,
        atomics_return_the_previous_values,
        concurrent_additions_all_count,
        comparing_operations_swap_if_they_should,
        atomic_limits_are_checked,
        operations_wait_for_the_connection,
        a_closed_region_is_refused,
        random_operations_match_a_model,
    ]
}

impl<M: EndpointMedium> Pair<M> {
    /// A range of B's memory.
    fn at(&self, addr: u64, len: usize) -> Target {
        Target::new(self.to_b, KEY, addr, len)
    }

    /// The outcome of an operation of A.
    #[track_caller]
    fn ended(&mut self, context: usize) -> Finished {
        self.wait("an operation ends", |a, _| a.outcome(context).is_some());
        let mut all = self.a.take(context);
        assert_eq!(all.len(), 1, "it ends once");
        all.remove(0)
    }

    #[track_caller]
    fn succeeds(&mut self, context: usize) -> Finished {
        let ended = self.ended(context);
        assert!(ended.outcome.is_ok(), "{:?}", ended.outcome);
        ended
    }

    #[track_caller]
    fn fails(&mut self, context: usize, cause: Cause, errno: Errno) {
        let failure = self.ended(context).outcome.expect_err("it is refused");
        assert_eq!((failure.cause, failure.errno), (cause, errno), "{}", failure.text);
    }

    fn fetch_add(&mut self, addr: u64, more: u64) -> usize {
        let target = self.at(addr, 8);
        self.a.try_atomic(&target, FETCH_ADD, &more.to_ne_bytes(), &[], OpFlags::empty()).expect("few are outstanding")
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}

fn writes_of_every_size_arrive_whole<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for len in sizes::<M::Carrier>() {
        let memory = pair.b.expose(KEY, vec![0xaa; len + 16]);
        let target = pair.at(8, len);
        let write = pair.a.write(&target, content(len as u64, len));
        let done = pair.succeeds(write);
        let entry = done.completion();
        assert_eq!(entry.flags, OpFlags::RMA | OpFlags::WRITE, "{len}");
        let bytes = memory.close();
        assert!(bytes[8..8 + len] == content(len as u64, len), "{len} bytes");
        assert!(
            bytes[..8].iter().chain(&bytes[8 + len..]).all(|byte| *byte == 0xaa),
            "the write changed bytes beside its {len}"
        );
    }
    pair.end();
}

fn reads_of_every_size_return_the_memory<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for len in sizes::<M::Carrier>() {
        let memory = pair.b.expose(KEY, content(len as u64, len + 3));
        let target = pair.at(3, len);
        let read = pair.a.read(&target);
        let done = pair.succeeds(read);
        assert_eq!(done.completion().flags, OpFlags::RMA | OpFlags::READ);
        assert!(done.bytes == content(len as u64, len + 3)[3..], "{len} bytes");
        memory.close();
    }
    pair.end();
}

fn several_ranges_are_one_operation<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let memory = pair.b.expose(KEY, vec![0; 2 << 20]);
    let ranges = [(100, 7), (1 << 20, 70_000), (0, 64), (5000, 0), (300_000, MOST_EAGER + 9)];
    let mut target = pair.at(200, 8);
    let mut total = 8;
    for (addr, len) in ranges {
        target = target.and(KEY, addr, len);
        total += len;
    }
    let bytes = content(1, total);
    let write = pair.a.write(&target, bytes.clone());
    pair.succeeds(write);
    let read = pair.a.read(&target);
    assert!(pair.succeeds(read).bytes == bytes);
    let held = memory.close();
    assert!(held[200..208] == bytes[..8] && held[100..107] == bytes[8..15]);
    let most = target.and(KEY, 0, 1).and(KEY, 1, 1).and(KEY, 2, 1);
    assert_eq!(pair.a.try_read(&most, OpFlags::empty()), Err(Errno::EINVAL), "nine ranges are too many");
    assert_eq!(
        pair.a.try_write(&pair.at(0, 9), vec![0; 8], None, OpFlags::empty()),
        Err(Errno::EINVAL),
        "lengths differ"
    );
    pair.end();
}

fn the_later_of_two_writes_wins<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for len in [8, 5000, MOST_EAGER + 1, LONG] {
        let memory = pair.b.expose(KEY, vec![0; len]);
        let whole = pair.at(0, len);
        let writes: Vec<usize> = (0..5).map(|round| pair.a.write(&whole, content(round, len))).collect();
        let end = pair.at(len as u64 - 1, 1);
        let last = pair.a.write(&end, vec![0x5a]);
        for write in writes {
            pair.succeeds(write);
        }
        pair.succeeds(last);
        let mut expected = content(4, len);
        expected[len - 1] = 0x5a;
        assert!(memory.close() == expected, "{len} bytes");
    }
    pair.end();
}

/// max_order_raw_size is unlimited; max_order_war_size is the size of a short response.
fn a_read_sees_the_writes_before_it_and_none_behind_it<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for len in [8, 100, 4096] {
        let memory = pair.b.expose(KEY, vec![0; LONG]);
        let long = pair.at(0, LONG);
        let first = pair.a.write(&long, content(1, LONG));
        let target = pair.at(0, len);
        let read = pair.a.read(&target);
        let second = pair.a.write(&long, content(2, LONG));
        let before = pair.succeeds(read);
        assert!(before.bytes == content(1, LONG)[..len], "{len} bytes");
        pair.succeeds(first);
        pair.succeeds(second);
        assert!(memory.close() == content(2, LONG));
    }
    pair.end();
}

fn a_message_behind_a_write_comes_after_it<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for len in [8, 70_000, LONG] {
        let memory = pair.b.expose(KEY, vec![0; len]);
        let receive = pair.b.receive(FiAddr::UNSPEC, 1, 8);
        let target = pair.at(0, len);
        let write = pair.a.write(&target, content(3, len));
        let send = pair.a.send(pair.to_b, 1, vec![1; 8]);
        pair.wait("the message arrives", |_, b| b.is_done(receive));
        assert!(memory.bytes() == content(3, len), "{len} bytes");
        pair.succeeds(write);
        pair.succeeds(send);
        pair.b.take(receive);
        memory.close();
    }
    pair.end();
}

fn completion_data_is_reported_without_a_receive<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let memory = pair.b.expose(KEY, vec![0; LONG]);
    for (data, len) in [(7, 8), (8, 0), (9, 70_000), (10, LONG)] {
        let target = pair.at(0, len);
        let write = pair.a.try_write(&target, content(data, len), Some(data), OpFlags::empty()).unwrap();
        pair.wait("B gets the completion", |_, b| !b.inject_errors().is_empty());
        let reported = pair.b.take(0).remove(0);
        let entry = *reported.outcome.as_ref().expect("it is no error");
        let flags = OpFlags::RMA | OpFlags::REMOTE_WRITE | OpFlags::REMOTE_CQ_DATA;
        assert_eq!((entry.flags, entry.data, entry.len), (flags, data, len));
        assert!(memory.bytes()[..len] == content(data, len), "the bytes arrived after the completion at B");
        pair.succeeds(write);
    }
    memory.close();
    pair.end();
}

fn injected_writes_leave_no_success<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let memory = pair.b.expose(KEY, vec![0; 8 * 300]);
    for round in 0..300u64 {
        let target = pair.at(round * 8, 8);
        while pair.a.inject_write(&target, content(round, 8), None).is_err() {
            pair.poll();
        }
    }
    let read = pair.a.read(&pair.at(0, 8));
    pair.succeeds(read);
    let expected: Vec<u8> = (0..300).flat_map(|round| content(round, 8)).collect();
    assert!(memory.close() == expected);
    assert_eq!(pair.a.inject_write(&pair.at(0, 4097), vec![0; 4097], None), Err(Errno::EMSGSIZE));
    pair.a.inject_write(&Target::new(pair.to_b, 77, 0, 8), vec![0; 8], None).expect("it is accepted");
    pair.wait("its failure is reported", |a, _| !a.inject_errors().is_empty());
    let failure = pair.a.take(0).remove(0).outcome.expect_err("there is no such key");
    assert_eq!((failure.cause, failure.errno), (Cause::RemoteKey, Errno::EINVAL));
    pair.end();
}

fn a_refused_operation_fails_for_its_initiator_alone<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let memory = pair.b.expose(KEY, vec![1; 100]);
    let readable = pair.b.try_expose(2, vec![2; 100], MrAccess::REMOTE_READ).unwrap();
    let writable = pair.b.try_expose(3, vec![3; 100], MrAccess::REMOTE_WRITE).unwrap();
    assert_eq!(pair.b.try_expose(3, vec![4; 100], MrAccess::REMOTE_WRITE).unwrap_err().errno(), Errno::ENOKEY);
    let to = pair.to_b;
    let refused = [
        (Target::new(to, KEY + 1, 0, 8), Cause::RemoteKey, Errno::EINVAL),
        (Target::new(to, KEY, 93, 8), Cause::RemoteBounds, Errno::EACCES),
        (Target::new(to, KEY, 0, 101), Cause::RemoteBounds, Errno::EACCES),
        (Target::new(to, KEY, u64::MAX - 3, 8), Cause::RemoteBounds, Errno::EACCES),
        (Target::new(to, KEY, 0, LONG), Cause::RemoteBounds, Errno::EACCES),
    ];
    for (target, cause, errno) in refused {
        let len = usize::try_from(target.ranges[0].len).unwrap();
        let write = pair.a.write(&target, vec![9; len]);
        pair.fails(write, cause, errno);
        let read = pair.a.read(&target);
        pair.fails(read, cause, errno);
        if len == 8 {
            let add = pair.a.try_atomic(&target, FETCH_ADD, &[1; 8], &[], OpFlags::empty()).unwrap();
            pair.fails(add, cause, errno);
        }
    }
    let write = pair.a.write(&Target::new(to, 2, 0, 8), vec![9; 8]);
    pair.fails(write, Cause::RemoteRights, Errno::EACCES);
    let read = pair.a.read(&Target::new(to, 3, 0, 8));
    pair.fails(read, Cause::RemoteRights, Errno::EACCES);
    let add = pair.a.try_atomic(&Target::new(to, 3, 0, 8), FETCH_ADD, &[1; 8], &[], OpFlags::empty()).unwrap();
    pair.fails(add, Cause::RemoteRights, Errno::EACCES);
    // The link still works, and nothing was written.
    let fine = pair.a.write(&pair.at(0, 4), vec![9; 4]);
    pair.succeeds(fine);
    assert_eq!(memory.close(), [[9; 4].as_slice(), [1; 96].as_slice()].concat());
    assert_eq!((readable.close(), writable.close()), (vec![2; 100], vec![3; 100]));
    pair.end();
}

fn a_refused_range_among_others_fails_the_operation<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let memory = pair.b.expose(KEY, vec![0; 1 << 20]);
    for bad in 0..3 {
        let ranges: Vec<(u64, u64)> = (0..3).map(|at| if at == bad { (9, 0) } else { (KEY, at * 1000) }).collect();
        let mut target = Target::new(pair.to_b, ranges[0].0, ranges[0].1, 600);
        target = target.and(ranges[1].0, ranges[1].1, 600).and(ranges[2].0, ranges[2].1, 600);
        let write = pair.a.write(&target, vec![1; 1800]);
        let read = pair.a.read(&target);
        let behind = pair.a.read(&pair.at(0, 8));
        pair.fails(write, Cause::RemoteKey, Errno::EINVAL);
        pair.fails(read, Cause::RemoteKey, Errno::EINVAL);
        pair.succeeds(behind);
    }
    memory.close();
    pair.end();
}

fn many_reads_wait_for_their_turn<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let bytes = content(5, 1 << 20);
    let memory = pair.b.expose(KEY, bytes.clone());
    let lens = [8, 3000, 5000, 70_000, 1 << 20];
    let reads: Vec<(usize, usize)> = (0..300)
        .map(|at| {
            let len = lens[if at % 50 == 0 { 4 } else { at % 4 }];
            (pair.a.read(&pair.at(0, len)), len)
        })
        .collect();
    for (read, len) in reads {
        assert!(pair.succeeds(read).bytes == bytes[..len], "{len} bytes");
    }
    memory.close();
    pair.end();
}

fn atomics_return_the_previous_values<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let memory = pair.b.expose(KEY, vec![0; 4096]);
    let adds: Vec<usize> = (0..200).map(|_| pair.fetch_add(16, 3)).collect();
    for (round, add) in adds.into_iter().enumerate() {
        let done = pair.succeeds(add);
        assert_eq!(done.completion().flags, OpFlags::ATOMIC | OpFlags::READ);
        assert_eq!(number(&done.bytes), 3 * round as u64);
    }
    let base = (AtomicKind::Base, AtomicOp::Max, Datatype::Int32);
    let values: Vec<u8> = (0..1024i32).flat_map(|value| (value - 500).to_ne_bytes()).collect();
    let max = pair.a.try_atomic(&pair.at(0, 4096), base, &values, &[], OpFlags::empty()).unwrap();
    assert_eq!(pair.succeeds(max).completion().flags, OpFlags::ATOMIC | OpFlags::WRITE);
    let fetch = (AtomicKind::Fetch, AtomicOp::Read, Datatype::Int32);
    let read = pair.a.try_atomic(&pair.at(0, 4096), fetch, &[], &[], OpFlags::empty()).unwrap();
    let held = pair.succeeds(read).bytes;
    let expected = |at: usize| if at == 4 { 600 } else { i32::try_from(at).unwrap().saturating_sub(500).max(0) };
    let held: Vec<i32> = held.chunks_exact(4).map(|it| i32::from_ne_bytes(it.try_into().unwrap())).collect();
    assert!(held.iter().enumerate().all(|(at, value)| *value == expected(at)), "{held:?}");
    memory.close();
    pair.end();
}

fn concurrent_additions_all_count<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let ours = pair.a.expose(KEY, vec![0; 8]);
    let memory = pair.b.expose(KEY, vec![0; 8]);
    let back = Target::new(pair.to_a, KEY, 0, 8);
    let (mut there, mut here) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        there.push(pair.fetch_add(0, 1));
        here.push(pair.b.try_atomic(&back, FETCH_ADD, &1u64.to_ne_bytes(), &[], OpFlags::empty()).unwrap());
    }
    let (mut seen, mut back): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
    for add in there {
        seen.push(number(&pair.succeeds(add).bytes));
    }
    for add in here {
        pair.wait("B's ends", |_, b| b.is_done(add));
        back.push(number(&pair.b.take(add).remove(0).bytes));
    }
    assert!(seen == (0..100).collect::<Vec<_>>() && back == seen);
    assert_eq!((number(&ours.close()), number(&memory.close())), (100, 100));
    pair.end();
}

fn comparing_operations_swap_if_they_should<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let memory = pair.b.expose(KEY, 5u64.to_ne_bytes().to_vec());
    let swap = |op| (AtomicKind::Compare, op, Datatype::Uint64);
    let cases = [
        (AtomicOp::Cswap, 4u64, 9u64, 5u64, 5u64),
        (AtomicOp::Cswap, 5, 9, 5, 9),
        (AtomicOp::CswapGt, 10, 3, 9, 3),
        (AtomicOp::CswapGt, 3, 4, 3, 3),
        (AtomicOp::Mswap, 0xf0, 0xabcd, 3, 0xc3),
    ];
    for (op, compare, operand, before, after) in cases {
        let (operand, compare) = (operand.to_ne_bytes(), compare.to_ne_bytes());
        let context = pair.a.try_atomic(&pair.at(0, 8), swap(op), &operand, &compare, OpFlags::empty()).unwrap();
        assert_eq!(number(&pair.succeeds(context).bytes), before, "{op:?}");
        assert_eq!(number(&memory.bytes()), after, "{op:?}");
    }
    memory.close();
    pair.end();
}

fn atomic_limits_are_checked<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let target = pair.at(0, 4104);
    let post = |pair: &mut Pair<M>, target: &Target, what, operands: &[u8]| {
        pair.a.try_atomic(target, what, operands, &[], OpFlags::empty()).unwrap_err()
    };
    assert_eq!(post(&mut pair, &target, FETCH_ADD, &[0; 4104]), Errno::EMSGSIZE);
    let target = pair.at(0, 12);
    assert_eq!(post(&mut pair, &target, FETCH_ADD, &[0; 12]), Errno::EINVAL);
    let target = pair.at(0, 8);
    let invalid = (AtomicKind::Base, AtomicOp::Bor, Datatype::Double);
    assert_eq!(post(&mut pair, &target, invalid, &[0; 8]), Errno::EOPNOTSUPP);
    let invalid = (AtomicKind::Base, AtomicOp::Cswap, Datatype::Uint64);
    assert_eq!(post(&mut pair, &target, invalid, &[0; 8]), Errno::EOPNOTSUPP);
    pair.end();
}

fn operations_wait_for_the_connection<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::unlinked(seed, |_| ());
    let memory = pair.b.expose(KEY, vec![0; LONG]);
    let write = pair.a.write(&pair.at(0, LONG), content(1, LONG));
    let add = pair.fetch_add(0, 0);
    let read = pair.a.read(&pair.at(0, LONG));
    pair.succeeds(write);
    assert_eq!(pair.succeeds(add).bytes, content(1, LONG)[..8]);
    assert!(pair.succeeds(read).bytes == content(1, LONG));
    memory.close();
    pair.end();
}

fn a_closed_region_is_refused<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let memory = pair.b.expose(KEY, vec![0; 64]);
    let write = pair.a.write(&pair.at(0, 8), vec![1; 8]);
    pair.succeeds(write);
    memory.close();
    let write = pair.a.write(&pair.at(0, 8), vec![1; 8]);
    pair.fails(write, Cause::RemoteKey, Errno::EINVAL);
    let again = pair.b.expose(KEY, vec![0; 64]);
    let write = pair.a.write(&pair.at(0, 8), vec![1; 8]);
    pair.succeeds(write);
    assert_eq!(again.close()[..8], [1; 8]);
    pair.end();
}

/// Writes, reads, atomics and messages in random order against a plain array: the offered orders
/// (FI_ORDER_RAW, WAW, WAR up to max_order_war_size, SAW) hold.
fn random_operations_match_a_model<M: EndpointMedium>(seed: u64) {
    const SIZE: usize = 600_000;
    let mut pair = Pair::<M>::new(seed);
    let memory = pair.b.expose(KEY, vec![0; SIZE]);
    let mut model = vec![0u8; SIZE];
    let mut expected: Vec<(usize, Vec<u8>)> = Vec::new();
    for step in 0..400u64 {
        let short = pair.rng.u8(0..10) < 8;
        let len = if short { pair.rng.usize(0..4096) } else { pair.rng.usize(0..SIZE / 2) };
        let at = pair.rng.usize(0..SIZE - len);
        let target = pair.at(at as u64, len);
        match pair.rng.u8(0..6) {
            0 | 1 => {
                let bytes = content(step, len);
                model[at..at + len].copy_from_slice(&bytes);
                let write = pair.a.write(&target, bytes.clone());
                expected.push((write, bytes));
            }
            2 => {
                let len = len.min(4096);
                let read = pair.a.read(&pair.at(at as u64, len));
                expected.push((read, model[at..at + len].to_vec()));
            }
            3 => {
                let at = at & !7;
                let before = number(&model[at..at + 8]);
                let add = pair.fetch_add(at as u64, step);
                model[at..at + 8].copy_from_slice(&before.wrapping_add(step).to_ne_bytes());
                expected.push((add, before.to_ne_bytes().to_vec()));
            }
            4 => {
                let len = len.min(4096);
                let bytes = content(step, len);
                if pair.a.inject_write(&pair.at(at as u64, len), bytes.clone(), None).is_ok() {
                    model[at..at + len].copy_from_slice(&bytes);
                }
            }
            _ => {
                pair.a.progress();
                pair.b.progress();
            }
        }
    }
    let receive = pair.b.post_receive(Receive::new(8).tagged(1));
    let send = pair.a.send(pair.to_b, 1, vec![1; 8]);
    pair.wait("the message behind everything", |_, b| b.is_done(receive));
    assert!(memory.bytes() == model, "the memory differs from the model");
    for (context, bytes) in expected {
        let done = pair.succeeds(context);
        assert!(done.bytes == bytes, "{:?}", done.outcome);
    }
    pair.succeeds(send);
    pair.b.take(receive);
    memory.close();
    pair.end();
}
