use super::*;
use ofi_engine::wire::frame::Frame;
use std::time::Duration;

#[test]
fn permission_is_requested_after_some_payloads_and_again_after_many() {
    let mut direct = Cma::new(CmaMode::IfFaster, 0);
    let (none, buffer) = (Classes::default(), Buffer::Owned(vec![1]));
    assert!((1..ASK_AFTER).all(|_| !direct.is_time_to_ask(LEAST)));
    assert!(direct.is_time_to_ask(LEAST));
    direct.asked();
    assert!(!direct.is_time_to_ask(LEAST));
    assert!(direct.answered(Classes::ALL));
    // The pool has had its turn.
    assert!(direct.place_of(&buffer, 0, LEAST).is_some());
    // The first payloads of another class go through the pool, but not long ones.
    assert!(direct.place_of(&buffer, 0, 2 * LEAST).is_none() && direct.place_of(&buffer, 0, Length::LONG).is_some());
    // Later the other side withdraws the permission, for a class or for all.
    direct.restricted(Classes(Classes::ALL.0 & !1));
    assert!(!direct.lends(LEAST) && direct.lends(1 << 20));
    direct.restricted(Classes::ALL);
    assert!(!direct.lends(LEAST), "more than was granted");
    direct.restricted(none);
    assert!(direct.place_of(&buffer, 0, 1 << 20).is_none());
    direct.restricted(none);
    assert!((1..ASK_AGAIN_AFTER).all(|_| !direct.is_time_to_ask(1 << 20)));
    assert!(direct.is_time_to_ask(1 << 20));
    // The pause doubles with each question.
    direct.asked();
    assert!(direct.answered(none));
    assert!((1..2 * ASK_AGAIN_AFTER).all(|_| !direct.is_time_to_ask(1 << 20)));
    assert!(direct.is_time_to_ask(1 << 20));
    // An answer without a question.
    for answer in [Classes::ALL, none] {
        assert!(!Cma::new(CmaMode::IfFaster, 0).answered(answer));
    }
    assert!(!Cma::new(CmaMode::Never, 0).is_time_to_ask(1 << 20));
}

#[test]
fn permission_for_long_payloads_is_requested_at_once_but_not_again() {
    let mut direct = Cma::new(CmaMode::IfFaster, 1 << 20);
    direct.comparison.is_kernel_fast = Some(false);
    assert!(!direct.is_time_to_ask(Length::LONG - 1) && direct.is_time_to_ask(Length::LONG));
    direct.comparison.is_kernel_fast = Some(true);
    assert!(!direct.is_time_to_ask(Length::MIDDLE - 1) && direct.is_time_to_ask(Length::MIDDLE));
    direct.asked();
    assert!(direct.answered(Classes::default()));
    assert!((0..1000).all(|_| !direct.is_time_to_ask(Length::LONG)), "the system does not allow it");
}

#[test]
fn a_pool_that_was_not_used_is_warm_before_it_is_compared() {
    let mut direct = Cma::new(CmaMode::IfFaster, 4 << 20);
    assert!(direct.is_time_to_ask(Length::LONG));
    direct.asked();
    assert!(direct.answered(Classes::ALL));
    let mut through_pool = |payloads: u32| {
        (0..payloads).filter(|_| !direct.is_time_to_ask(Length::LONG) && !direct.lends(Length::LONG)).count()
    };
    let (first, second) = (through_pool(4096), through_pool(4096));
    assert_eq!(first - second, ((2 * 4) << 20) / Length::LONG);
    assert!((1..100).contains(&second), "the pool's turn comes again");
    // Longer messages come in several frames through the pool.
    let direct = |_| !direct.is_time_to_ask(4 << 20) && direct.lends(4 << 20);
    assert!((0..5000).all(direct), "the pool has no turn");
}

#[test]
fn a_class_that_is_missing_is_asked_for_again() {
    let mut direct = Cma::new(CmaMode::IfAllowed, 0);
    assert!(direct.is_time_to_ask(LEAST));
    direct.asked();
    assert!(direct.answered(Classes(1)));
    assert!((1..ASK_AGAIN_AFTER).all(|_| !direct.is_time_to_ask(LEAST)));
    assert!(direct.is_time_to_ask(LEAST));
}

#[test]
fn a_withdrawal_that_meets_a_question_does_not_answer_it() {
    let mut direct = Cma::new(CmaMode::IfAllowed, 0);
    assert!(direct.is_time_to_ask(LEAST));
    direct.asked();
    direct.restricted(Classes::default());
    // Nor does a payload that could not be read.
    (0..2 * REFUSALS).for_each(|_| direct.refused());
    assert!(!direct.is_time_to_ask(LEAST));
    assert!(direct.answered(Classes::ALL) && direct.lends(LEAST));
}

#[test]
fn some_payloads_that_cannot_be_read_do_not_stop_the_others() {
    let mut direct = Cma::new(CmaMode::IfAllowed, 0);
    direct.asked();
    assert!(direct.answered(Classes::ALL));
    for _ in 0..10 {
        (1..REFUSALS).for_each(|_| direct.refused());
        assert!(direct.lends(LEAST));
        direct.was_read();
    }
    (0..REFUSALS).for_each(|_| direct.refused());
    assert!(!direct.lends(LEAST) && !direct.lends(1 << 20));
}

#[test]
fn a_side_lends_no_more_than_the_other_can_report() {
    let mut direct = Cma::new(CmaMode::IfAllowed, 0);
    direct.asked();
    assert!(direct.answered(Classes::ALL));
    while direct.lends(LEAST) {
        let (header, buffer) = (Frame::Cts { id: 0, token: 0, len: 0 }.encode(), Buffer::Owned(Vec::new()));
        direct.lend(CmaLoan::new(direct.next_number(), header, buffer, (0, LEAST), (Token(0), Kind::Offer)));
    }
    assert_eq!(direct.lent.len(), MOST_LENT);
    assert!(direct.take_back(7, |_| false).is_none() && direct.take_back(7, |_| true).is_some());
    assert!(direct.take_back(7, |_| true).is_none());
    assert!(direct.lends(LEAST));
}

#[test]
fn classes_double_and_survive_the_wire() {
    let sizes = [LEAST, 2 * LEAST - 1, 2 * LEAST, 64 << 10, 1 << 20, 1 << 30];
    assert_eq!(sizes.map(Classes::index), [0, 0, 1, 2, 6, 7]);
    for code in 0..300 {
        assert_eq!(Classes::from_code(code).map(Classes::code), (code < 1 << Classes::COUNT).then_some(code));
    }
}

#[test]
fn a_class_of_which_the_pool_is_faster_is_read_no_more() {
    let left = Classes(Classes::ALL.0 & !(1 << Classes::index(64 << 10)));
    for (how, expected) in [(CmaMode::IfFaster, vec![left]), (CmaMode::IfAllowed, Vec::new())] {
        let mut direct = Cma { reading: Reading { granted: Classes::ALL, ..Reading::default() }, ..Cma::new(how, 0) };
        let mut now = ofi_os::clock::now();
        let mut pass = |way, micros| {
            now = now + Duration::from_micros(micros);
            direct.note(way, || now, 64 << 10)
        };
        assert!((0..200).all(|_| pass(Way::Pool, 50).is_none()));
        let mut revoked: Vec<_> = (0..100).filter_map(|_| pass(Way::Both, 60)).collect();
        revoked.extend((0..1000).filter_map(|_| pass(Way::Read, 100)));
        assert_eq!(revoked, expected, "{how:?}");
    }
}

#[test]
fn a_side_that_reads_no_answers_gets_no_more_of_them() {
    let pid = i32::try_from(std::process::id()).unwrap();
    let secret: Box<[u8; 16]> = Box::new(ofi_os::random());
    let at = secret.as_ptr().addr();
    for (how, yes) in [(CmaMode::IfFaster, Classes::ALL), (CmaMode::Never, Classes::default())] {
        let mut direct = Cma::new(how, 0);
        assert_eq!(direct.try_process(pid, at, *secret), Some(yes));
        assert_eq!(direct.try_process(pid, 8, *secret), None);
        direct.has_answered();
        // What was lent before still comes from the process found first.
        assert_eq!(direct.try_process(pid, 8, *secret), Some(Classes::default()));
        assert_eq!(direct.peer().is_some(), how != CmaMode::Never);
    }
    let mut direct = Cma::default();
    assert!((0..REPLIES).all(|_| direct.reply()));
    direct.replied();
    assert!(direct.reply() && !direct.reply());
}

#[test]
fn numbers_of_loans_that_last_are_not_given_again() {
    let mut direct = Cma::new(CmaMode::Both, 0);
    let frame = Frame::Ack { id: 0 }.encode();
    let lend = |direct: &mut Cma| {
        let number = direct.next_number();
        let loan = CmaLoan::new(number, frame, Buffer::Owned(vec![1]), (0, 1), (Token(0), Kind::Offer));
        direct.lend(loan);
        number
    };
    assert_eq!([0; 3].map(|_| lend(&mut direct)), [1, 2, 3]);
    direct.take_back(2, |_| true).unwrap();
    assert!(direct.waits(1) && direct.waits(3));
    // All numbers have been used meanwhile.
    direct.next = 0;
    assert_eq!([0; 2].map(|_| lend(&mut direct)), [2, 4]);
}
