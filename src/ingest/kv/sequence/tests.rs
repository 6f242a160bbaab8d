//! The machine, case by case, and against the model engine over random histories.

use proptest::prelude::*;

use super::{
    Action::{self, Apply, Clear, Enter, Gap, Redial, Restarted, StartReplay},
    Input, Mode, Sequence,
    model::{Command, World},
};

fn payload(text: &str) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(text.as_bytes())
}

fn live(seq: u64, text: &str) -> Input {
    Input::Live { seq, payload: payload(text) }
}

fn replayed(seq: u64, text: &str) -> Input {
    Input::ReplayBatch { seq, payload: payload(text) }
}

/// Feeds all inputs, answers the actions of the last one.
fn after(has_replay: bool, inputs: &[Input]) -> Vec<Action> {
    let mut machine = Sequence::new(has_replay);
    let mut out = vec![];
    for input in inputs {
        (machine, out) = machine.step(input.clone());
    }
    out
}

#[test]
fn subscribing_replays_from_0_into_a_cleared_worker() {
    let out = after(true, &[Input::Connected]);
    assert_eq!(out, [Enter(Mode::Replaying), Clear, StartReplay { from: 0 }]);
}

#[test]
fn without_a_replay_socket_it_goes_live() {
    assert_eq!(after(false, &[Input::Connected]), [Clear, Enter(Mode::LiveOnly)]);
    assert_eq!(after(false, &[Input::Connected, live(40, "a")]), [Apply(payload("a"))]);
}

#[test]
fn an_empty_replay_is_known() {
    let inputs = [Input::Connected, Input::ReplayEnd];
    assert_eq!(after(true, &inputs), [Enter(Mode::Synced)]);
    let inputs = [Input::Connected, Input::ReplayEnd, live(0, "a")];
    assert_eq!(after(true, &inputs), [Apply(payload("a"))]);
}

#[test]
fn a_first_message_beyond_an_empty_replay_is_a_gap() {
    let out = after(true, &[Input::Connected, Input::ReplayEnd, live(3, "d")]);
    assert_eq!(out, [Gap, Enter(Mode::Replaying), Clear, StartReplay { from: 0 }]);
}

#[test]
fn live_messages_wait_and_those_covered_are_skipped() {
    let mut inputs = vec![Input::Connected, replayed(7, "h"), live(8, "i"), live(9, "j"), replayed(8, "i")];
    inputs.push(Input::ReplayEnd);
    assert_eq!(after(true, &inputs), [Apply(payload("j")), Enter(Mode::Synced)]);
    // Covered, but it arrives only after the replay.
    let mut inputs = vec![Input::Connected, replayed(7, "h"), replayed(8, "i"), Input::ReplayEnd];
    inputs.push(live(8, "i"));
    assert_eq!(after(true, &inputs), []);
    inputs.push(live(9, "j"));
    assert_eq!(after(true, &inputs), [Apply(payload("j"))]);
}

#[test]
fn a_gap_replays_from_the_one_after_the_last() {
    let mut inputs = vec![Input::Connected, replayed(0, "a"), Input::ReplayEnd, live(3, "d")];
    assert_eq!(after(true, &inputs), [Gap, Enter(Mode::Replaying), StartReplay { from: 1 }]);
    inputs.extend([replayed(1, "b"), replayed(2, "c"), Input::ReplayEnd]);
    assert_eq!(after(true, &inputs), [Apply(payload("d")), Enter(Mode::Synced)]);
}

#[test]
fn a_gap_replay_that_begins_elsewhere_starts_over() {
    let start = [Input::Connected, replayed(0, "a"), Input::ReplayEnd, live(3, "d")];
    let over = [Clear, StartReplay { from: 0 }];
    let overrun = [&start[..], &[replayed(2, "c")]].concat();
    assert_eq!(after(true, &overrun), over);
    let empty = [&start[..], &[Input::ReplayEnd]].concat();
    assert_eq!(after(true, &empty), over);
}

#[test]
fn a_gap_without_a_replay_socket_clears() {
    let out = after(false, &[Input::Connected, live(4, "a"), live(6, "c")]);
    assert_eq!(out, [Gap, Clear, Apply(payload("c"))]);
}

#[test]
fn a_number_going_back_is_a_restart() {
    let start = [Input::Connected, Input::ReplayEnd, live(0, "a"), live(1, "b"), live(0, "A")];
    let scratch = [Restarted, Enter(Mode::Replaying), Clear, StartReplay { from: 0 }];
    assert_eq!(after(true, &start), scratch);
    let out = after(false, &[Input::Connected, live(4, "a"), live(0, "A")]);
    assert_eq!(out, [Restarted, Clear, Apply(payload("A"))]);
    // Even with the same bytes: nothing comes twice on one connection.
    assert_eq!(after(true, &[Input::Connected, Input::ReplayEnd, live(0, "a"), live(0, "a")]), scratch);
    // Numbers that the replay had too, but other bytes.
    let inputs = [Input::Connected, replayed(0, "a"), replayed(1, "b"), Input::ReplayEnd, live(0, "A")];
    assert_eq!(after(true, &inputs), scratch);
    let inputs = [Input::Connected, live(0, "A"), replayed(0, "a"), replayed(1, "b"), Input::ReplayEnd];
    assert_eq!(after(true, &inputs), [Clear, StartReplay { from: 0 }]);
    let inputs = [Input::Connected, live(7, "h"), live(3, "D")];
    assert_eq!(after(true, &inputs), [Restarted, Clear, StartReplay { from: 0 }]);
}

#[test]
fn a_hole_in_a_replay_is_replayed() {
    let mut inputs = vec![Input::Connected, replayed(0, "a"), replayed(5, "f")];
    assert_eq!(after(true, &inputs), [StartReplay { from: 1 }]);
    // The end of the stream was dropped, and nothing came since.
    inputs.push(Input::ReplayEnd);
    assert_eq!(after(true, &inputs), [Enter(Mode::Synced)]);
}

#[test]
fn a_failed_replay_goes_on_with_what_is_live_and_unbroken() {
    let inputs =
        [Input::Connected, replayed(0, "a"), live(4, "e"), live(6, "g"), live(7, "h"), Input::ReplayFailed];
    let out = after(true, &inputs);
    assert_eq!(out, [Clear, Enter(Mode::LiveOnly), Apply(payload("g")), Apply(payload("h"))]);
    let gap = [&inputs[..], &[live(9, "j")]].concat();
    assert_eq!(after(true, &gap), [Gap, Enter(Mode::Replaying), Clear, StartReplay { from: 0 }]);
}

#[test]
fn an_engine_that_never_has_what_it_sent_ends_live_only() {
    let mut machine = Sequence::new(true).step(Input::Connected).0.step(live(5, "f")).0;
    for _ in 0..200 {
        let (next, out) = machine.step(Input::ReplayEnd);
        machine = next;
        if out.contains(&Enter(Mode::LiveOnly)) {
            assert_eq!(out.last(), Some(&Apply(payload("f"))));
            return;
        }
    }
    panic!("it asks forever");
}

#[test]
fn a_suspected_connection_resumes_where_it_was() {
    let start = [Input::Connected, replayed(0, "a"), replayed(1, "b"), Input::ReplayEnd, Input::Suspect];
    assert_eq!(after(true, &start), [Redial]);
    let again = [&start[..], &[Input::Connected]].concat();
    assert_eq!(after(true, &again), [Enter(Mode::Replaying), StartReplay { from: 1 }]);
    let same = [&again[..], &[replayed(1, "b"), replayed(2, "c")]].concat();
    assert_eq!(after(true, &same), [Apply(payload("c"))]);
    for other in [replayed(1, "B"), replayed(2, "c"), Input::ReplayEnd] {
        let restarted = [&again[..], &[other]].concat();
        assert_eq!(after(true, &restarted), [Clear, StartReplay { from: 0 }]);
    }
    let dead = [&start[..], &[Input::Disconnected]].concat();
    assert_eq!(after(true, &dead), [Clear, Enter(Mode::Disconnected)]);
}

#[test]
fn a_suspected_connection_without_replay_keeps_what_fits() {
    let start = [Input::Connected, live(4, "e"), Input::Suspect, Input::Connected];
    assert_eq!(after(false, &start), []);
    let cases =
        [(live(5, "f"), vec![]), (live(6, "g"), vec![Gap, Clear]), (live(2, "c"), vec![Restarted, Clear])];
    for (next, before) in cases {
        let Input::Live { payload, .. } = next.clone() else { unreachable!() };
        let out = after(false, &[&start[..], &[next]].concat());
        assert_eq!(out, [before, vec![Apply(payload)]].concat());
    }
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        8 => (0u8..3, 0u8..6).prop_map(|(op, block)| Command::Publish { op, block, lost: false }),
        2 => (0u8..2, 0u8..6).prop_map(|(op, block)| Command::Publish { op, block, lost: true }),
        6 => (1usize..4).prop_map(Command::Deliver),
        6 => (1usize..6).prop_map(Command::Serve),
        1 => (1usize..3).prop_map(Command::DropFromReplay),
        1 => Just(Command::FailReplay),
        1 => Just(Command::Disconnect),
        3 => Just(Command::Connect),
        1 => any::<bool>().prop_map(|seen| Command::Restart { seen }),
        1 => Just(Command::Suspect),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever is lost, cut or restarted: once all is delivered, the blocks held are the engine's.
    #[test]
    fn once_quiet_and_synced_the_blocks_are_the_engines(
        commands in proptest::collection::vec(command(), 0..60),
        has_replay in any::<bool>(),
        kept in prop_oneof![Just(3usize), Just(1000)],
    ) {
        let mut world = World::new(has_replay, kept);
        for command in commands {
            world.run(command);
        }
        world.settle();
        world.check();
    }
}
