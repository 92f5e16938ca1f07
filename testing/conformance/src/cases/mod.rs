//! The cases: each checks one part of the contract with scripts generated from a seed.

mod delivery;
mod ends;
mod handshake;
mod pressure;
mod random;
mod sleep;

use crate::medium::{Medium, Need};

/// A case.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The properties that the medium must have.
    pub(crate) needs: &'static [Need],
    /// It runs this fraction of the scripts.
    pub(crate) share: u64,
    /// Runs the script of a seed.
    pub(crate) run: fn(u64),
}

/// Directed cases run this fraction of the scripts.
const SOME: u64 = 10;
/// The same for long ones.
const FEW: u64 = 100;

/// The same for cases whose scripts differ little.
const ONE: u64 = 1000;

/// All cases.
pub(crate) fn all<M: Medium>() -> Vec<Case> {
    const NOTHING: &[Need] = &[];
    let case = |name, share, needs, run| Case { name, needs, share, run };
    vec![
        case("random_scripts", 1, NOTHING, random::script::<M>),
        case("frames_of_every_size_arrive_whole_and_in_order", FEW, NOTHING, delivery::every_size::<M>),
        case("large_data_frames_arrive_one_after_the_other", SOME, NOTHING, delivery::data_frames::<M>),
        case("seventy_thousand_frames_arrive", ONE, NOTHING, delivery::many::<M>),
        case("flush_all_leaves_nothing_held", SOME, NOTHING, delivery::flush_all::<M>),
        case("a_poll_leaves_nothing_held", SOME, NOTHING, delivery::poll::<M>),
        case("what_reports_nothing_is_never_held", SOME, NOTHING, delivery::unreported::<M>),
        case(
            "a_link_that_one_side_shuts_down_delivers_everything_first",
            SOME,
            &[Need::Ends],
            ends::one_shuts_down::<M>,
        ),
        case("a_link_that_both_sides_shut_down_ends_once", SOME, &[Need::Ends], ends::both_shut_down::<M>),
        case("an_aborted_link_gives_everything_back", SOME, &[Need::Ends], ends::abort::<M>),
        case("a_peer_that_vanishes_ends_its_links", SOME, &[Need::Ends], ends::vanish::<M>),
        case("a_broken_medium_ends_the_links", SOME, &[Need::Ends, Need::Breaks], ends::breakage::<M>),
        case("a_violation_ends_that_link_only", SOME, &[Need::Ends], ends::violation::<M>),
        case("a_refused_link_ends_with_the_reason", SOME, &[Need::Ends], handshake::refused::<M>),
        case("connecting_can_be_aborted", SOME, &[Need::Ends], handshake::aborted::<M>),
        case("connecting_to_where_nothing_answers_fails", SOME, &[Need::Nowhere], handshake::nowhere::<M>),
        case("a_poll_that_gives_a_payload_back_returns_true", FEW, NOTHING, delivery::sent_is_activity::<M>),
        case("a_poll_that_reports_an_end_returns_true", FEW, &[Need::Nowhere], handshake::end_is_activity::<M>),
        case("a_listener_hands_its_requests_over", SOME, &[Need::Listener], handshake::listener::<M>),
        case(
            "a_peer_that_does_not_read_causes_back_pressure",
            SOME,
            &[Need::BackPressure],
            pressure::back_pressure::<M>,
        ),
        case("a_sleeper_is_woken_by_what_arrives", SOME, &[Need::Sleep], sleep::woken::<M>),
        case("a_sleeper_is_woken_after_much_traffic", FEW, &[Need::Sleep], sleep::woken_after_traffic::<M>),
        case(
            "a_sleeper_is_woken_by_what_arrives_on_a_link_from_a_listener",
            SOME,
            &[Need::Sleep, Need::Listener],
            sleep::woken_after_hand_over::<M>,
        ),
    ]
}
