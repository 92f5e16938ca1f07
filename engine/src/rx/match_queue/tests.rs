use super::*;
use proptest::prelude::*;

/// A queue whose index may take so many bytes.
fn queue_of(limit: usize) -> MatchQueue {
    MatchQueue::new(&Arc::new(Account::new(limit)))
}

#[derive(Clone, Debug)]
enum Step {
    Post(Pattern),
    PostPersistent(Pattern),
    Arrive(u64, u32),
    Withdraw(usize),
    Drop(usize),
    /// All messages of one peer turn out to be another's.
    Merge(u32, u32),
    /// The handles of all receives get their peer.
    Resolve(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let src = prop_oneof![
        3 => Just(Source::ANY),
        3 => (0u32..3).prop_map(Source::peer),
        1 => Just(Source::handle(FiAddr(5)))
    ];
    let ignore = prop_oneof![4 => Just(0u64), 1 => Just(3), 1 => Just(u64::MAX)];
    // Many tags, so that queues grow long.
    let pattern = (0u64..40, ignore, src).prop_map(|(tag, ignore, src)| Pattern { tag, ignore, src });
    prop_oneof![
        20 => pattern.clone().prop_map(Step::Post),
        1 => pattern.prop_map(Step::PostPersistent),
        20 => (0u64..40, 0u32..3).prop_map(|(tag, peer)| Step::Arrive(tag, peer)),
        4 => (0usize..60).prop_map(Step::Withdraw),
        4 => (0usize..60).prop_map(Step::Drop),
        1 => (0u32..3, 0u32..3).prop_map(|(from, into)| Step::Merge(from, into)),
        1 => (0u32..3).prop_map(Step::Resolve),
    ]
}

/// The matching rule as a naive model: two lists, searched from the front.
#[derive(Default)]
struct Model {
    posted: Vec<(Pattern, u32, bool)>,
    waiting: Vec<(u64, u32, u32)>,
}

impl Model {
    fn fits(pattern: &Pattern, tag: u64, peer: u32) -> bool {
        (tag | pattern.ignore) == (pattern.tag | pattern.ignore)
            && (pattern.src == Source::ANY || pattern.src == Source::peer(peer))
    }

    fn take_posted(&mut self, tag: u64, peer: u32) -> Option<u32> {
        let at = self.posted.iter().position(|(pattern, ..)| Self::fits(pattern, tag, peer))?;
        let (_, key, persistent) = self.posted[at];
        if !persistent {
            self.posted.remove(at);
        }
        Some(key)
    }

    fn position(&self, pattern: &Pattern) -> Option<usize> {
        self.waiting.iter().position(|(tag, peer, _)| Self::fits(pattern, *tag, *peer))
    }

    /// A number that no entry has; numbers are used again, as those of tables are.
    fn free_key(&self) -> u32 {
        let is_used = |key: &u32| {
            self.posted.iter().any(|(_, used, _)| used == key) || self.waiting.iter().any(|(.., used)| used == key)
        };
        (0..).find(|key| !is_used(key)).expect("there are more numbers than entries")
    }
}

/// Matches again after patterns or senders have changed, in the model and in the queue.
fn rematch(model: &mut Model, queue: &mut MatchQueue) {
    for (tag, peer, key) in model.waiting.clone() {
        let expected = model.take_posted(tag, peer);
        assert_eq!(queue.take_posted(tag, peer), expected);
        if expected.is_some() {
            model.waiting.retain(|(.., other)| *other != key);
            queue.drop_unexpected(key);
        }
    }
}

proptest! {
    #[test]
    fn matching_equals_a_naive_model(steps in proptest::collection::vec(step(), 0..400), limit in prop_oneof![Just(0), Just(200_000), Just(1 << 40)],) {
        let (mut model, mut queue) = (Model::default(), queue_of(limit));
        for step in steps {
            let key = model.free_key();
            match step {
                Step::Post(pattern) => {
                    let expected = model.position(&pattern).map(|at| model.waiting[at].2);
                    prop_assert!(!queue.only_queues(&pattern) || expected.is_none());
                    prop_assert_eq!(queue.find_unexpected(&pattern), expected);
                    prop_assert_eq!(queue.take_unexpected(&pattern), expected);
                    match expected {
                        Some(taken) => model.waiting.retain(|(.., other)| *other != taken),
                        None => {
                            model.posted.push((pattern, key, false));
                            queue.post(pattern, key);
                        }
                    }
                }
                Step::PostPersistent(pattern) => {
                    queue.post_persistent(pattern, key);
                    model.posted.push((pattern, key, true));
                    while let Some(at) = model.position(&pattern) {
                        prop_assert_eq!(queue.take_unexpected(&pattern), Some(model.waiting.remove(at).2));
                    }
                }
                Step::Arrive(tag, peer) => {
                    let expected = model.take_posted(tag, peer);
                    // Sometimes as the fast path does.
                    match queue.first(tag, peer).filter(|_| peer == 0) {
                        Some(first) => {
                            prop_assert_eq!(Some(first), expected);
                            queue.take_first();
                        }
                        None => prop_assert_eq!(queue.take_posted(tag, peer), expected),
                    }
                    if expected.is_none() {
                        model.waiting.push((tag, peer, key));
                        queue.push_unexpected(tag, peer, key);
                    }
                }
                Step::Withdraw(at) => {
                    if at < model.posted.len() {
                        let (_, key, _) = model.posted.remove(at);
                        prop_assert!(queue.withdraw(key));
                        prop_assert!(!queue.withdraw(key));
                    }
                }
                Step::Drop(at) => {
                    if at < model.waiting.len() {
                        let (.., key) = model.waiting.remove(at);
                        queue.drop_unexpected(key);
                        queue.drop_unexpected(key);
                    }
                }
                Step::Merge(from, into) => {
                    model.waiting.iter_mut().filter(|(_, peer, _)| *peer == from).for_each(|entry| entry.1 = into);
                    queue.merge(from, into);
                    rematch(&mut model, &mut queue);
                }
                Step::Resolve(peer) => {
                    let handle = Source::handle(FiAddr(5));
                    let pending = model.posted.iter_mut().filter(|(pattern, ..)| pattern.src == handle);
                    let count = pending.map(|(pattern, ..)| pattern.src = Source::peer(peer)).count();
                    prop_assert_eq!(queue.resolve(|_| Some(peer)), count > 0);
                    rematch(&mut model, &mut queue);
                }
            }
            prop_assert!(queue.posted().eq(model.posted.iter().map(|(_, key, _)| *key)));
            prop_assert!(queue.unexpected().map(|(key, _)| key).eq(model.waiting.iter().map(|(.., key)| *key)));
        }
    }
}

#[test]
fn long_queues_are_not_searched_from_the_front() {
    // With a linear search, each half would compare some 10^10 entries.
    const COUNT: u32 = 100_000;
    let exact = |tag: u32| Pattern { tag: tag.into(), ignore: 0, src: Source::ANY };
    let mut queue = queue_of(usize::MAX >> 1);
    (0..COUNT).for_each(|tag| queue.post(exact(tag), tag));
    (0..COUNT / 2).rev().for_each(|tag| assert_eq!(queue.take_posted(tag.into(), 1), Some(tag)));
    (COUNT / 2..COUNT).rev().for_each(|key| assert!(queue.withdraw(key)));
    assert_eq!(queue.posted_len(), 0);
    (0..COUNT).for_each(|tag| queue.push_unexpected(tag.into(), tag % 3, tag));
    (0..COUNT / 2).rev().for_each(|tag| assert_eq!(queue.take_unexpected(&exact(tag)), Some(tag)));
    (COUNT / 2..COUNT).rev().for_each(|key| queue.drop_unexpected(key));
    assert_eq!(queue.unexpected().count(), 0);
}

#[test]
fn a_receive_for_a_handle_takes_messages_from_before_the_handle_was_known() {
    let mut matcher = queue_of(usize::MAX >> 1);
    matcher.push_unexpected(1, 7, 10);
    let pattern = Pattern { tag: 1, ignore: 0, src: Source::handle(FiAddr(5)) };
    assert_eq!(matcher.take_unexpected(&pattern), None);
    matcher.post(pattern, 20);
    assert!(!matcher.resolve(|_| None));
    assert!(matcher.resolve(|handle| (handle == FiAddr(5)).then_some(7)));
    assert_eq!(matcher.take_posted(1, 6), None);
    assert_eq!(matcher.take_posted(1, 7), Some(20));
    assert!(!matcher.resolve(|_| Some(7)), "no receive is pending");
}

#[test]
fn a_merged_peers_messages_are_the_others() {
    let mut matcher = queue_of(usize::MAX >> 1);
    matcher.push_unexpected(1, 7, 10);
    matcher.push_unexpected(1, 3, 11);
    matcher.merge(7, 4);
    let from = |peer| Pattern { tag: 1, ignore: 0, src: Source::peer(peer) };
    assert_eq!(matcher.find_unexpected(&from(7)), None);
    assert_eq!(matcher.take_unexpected(&from(4)), Some(10));
    assert!(matcher.unexpected().map(|(key, _)| key).eq([11]));
}

#[test]
fn the_index_of_unexpected_messages_is_charged_and_given_back() {
    let account = Arc::new(Account::new(1 << 30));
    let mut queue = MatchQueue::new(&account);
    (0..1000).for_each(|tag| queue.push_unexpected(tag.into(), 1, tag));
    assert_eq!(account.used(), 0, "no search, no index");
    let last = |tag: u32| Pattern { tag: tag.into(), ignore: 0, src: Source::ANY };
    for tag in [999, 998, 997] {
        assert_eq!(queue.take_unexpected(&last(tag)), Some(tag));
    }
    let used = account.used();
    assert!(used >= 997 * 128, "{used}");
    (0..1000).for_each(|tag| queue.push_unexpected(tag.into(), 2, 1000 + tag));
    assert!(account.used() > used);
    drop(queue);
    assert_eq!(account.used(), 0);
}

#[test]
fn searches_make_an_index_once_they_have_cost_as_much() {
    let account = Arc::new(Account::new(1 << 30));
    let mut queue = MatchQueue::new(&account);
    let exact = |tag: u32| Pattern { tag: tag.into(), ignore: 0, src: Source::ANY };
    (0..1000).for_each(|tag| queue.push_unexpected(tag.into(), 1, tag));
    for tag in 0..100 {
        assert_eq!(queue.find_unexpected(&exact(2 * tag + 1)), Some(2 * tag + 1));
        queue.drop_unexpected(2 * tag + 1);
        assert_eq!(queue.take_unexpected(&exact(2 * tag)), Some(2 * tag));
    }
    // Long ones, but too few.
    assert_eq!(queue.find_unexpected(&exact(999)), Some(999));
    assert_eq!(account.used(), 0);
    for tag in [998, 997] {
        assert_eq!(queue.take_unexpected(&exact(tag)), Some(tag));
    }
    assert!(account.used() > 0);
    assert_eq!(queue.take_unexpected(&exact(200)), Some(200));
    assert_eq!(queue.take_unexpected(&exact(202)), Some(202));
}

#[test]
fn searches_of_posted_receives_make_an_index_once_they_have_cost_as_much() {
    let exact = |tag: u32| Pattern { tag: tag.into(), ignore: 0, src: Source::ANY };
    let mut queue = queue_of(usize::MAX >> 1);
    (0..1000).for_each(|tag| queue.post(exact(tag), tag));
    (0..100).for_each(|tag| assert_eq!(queue.take_posted(tag.into(), 1), Some(tag)));
    assert_eq!(queue.take_posted(999, 1), Some(999));
    assert!(queue.posted_index.built.is_none());
    for tag in [998, 997, 996] {
        assert_eq!(queue.take_posted(tag.into(), 1), Some(tag));
    }
    assert!(queue.posted_index.built.is_some());
}

#[test]
fn receives_that_take_the_places_of_cancelled_ones_are_matched_in_order() {
    let exact = |tag: u64| Pattern { tag, ignore: 0, src: Source::ANY };
    let mut queue = queue_of(usize::MAX >> 1);
    let long = u32::try_from(3 * LINEAR).expect("it is small");
    (0..long).for_each(|tag| queue.post(exact(tag.into()), tag));
    // Searches that find nothing make the index.
    assert!((0..10).all(|_| queue.take_posted(1000, 1).is_none()) && queue.posted_index.built.is_some());
    let last = u64::from(long - 1);
    assert!(queue.withdraw(long - 1) && queue.withdraw(long - 2));
    queue.post(exact(last), 1001);
    queue.post(exact(last), 1002);
    assert_eq!([queue.take_posted(last, 1), queue.take_posted(last, 1)], [Some(1001), Some(1002)]);
}
