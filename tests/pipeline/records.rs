//! What is remembered of decisions: every stage that they went through, and how their requests ended.

use kinference::{
    config::Profile,
    observe::{Kept, Shown},
    pipeline::{Incoming, IncomingBody},
    types::{ErrorKind, Outcome, Rejection, RequestKind, Stage},
};

use crate::site::{Site, call, prompt};

fn stages(kept: &Kept) -> Vec<Stage> {
    kept.record.stages.iter().map(|(stage, _)| stage).collect()
}

#[tokio::test]
async fn a_decision_is_remembered_with_its_stages_and_its_end() {
    let site = Site::of(&Profile { name: "p".into(), ..Profile::default() }, 2);
    let mut placement = site.place(prompt(0..64)).await;
    placement.first_token();
    placement.finish(Outcome::Completed, None);
    drop(site.place(prompt(0..64)).await);
    let kept = site.decisions.after(0, 9);
    let ends: Vec<_> =
        kept.iter().map(|one| one.ending.map(|end| (end.outcome, end.ttft.is_some()))).collect();
    assert_eq!(ends, [Some((Outcome::Completed, true)), Some((Outcome::Cancelled, false))]);
    // No pool: no rules.
    let all = Stage::ALL.into_iter().filter(|stage| *stage != Stage::Policy);
    assert_eq!(stages(&kept[0]), all.collect::<Vec<_>>());
    assert_eq!((kept[0].record.call, &*kept[0].record.request_id), ("completions", "r"));
}

#[tokio::test]
async fn a_rejection_is_remembered_with_its_reason() {
    let site = Site::of(&Profile { name: "p".into(), ..Profile::default() }, 1);
    site.refusal(call(kinference::types::Api::Completions, "{")).await;
    let kept = &site.decisions.of_request("r")[0];
    assert_eq!(kept.record.decided.as_ref().unwrap_err().kind, ErrorKind::BadRequest);
    assert_eq!((stages(kept), kept.ending), (vec![Stage::Buffer, Stage::Parse], None));
}

#[tokio::test]
async fn what_never_got_to_a_decision_is_remembered_and_counted_once() {
    let site = Site::of(&Profile { name: "p".into(), ..Profile::default() }, 1);
    let incoming = Incoming {
        tenant: Some("acme".into()),
        model: Some("m".into()),
        body: IncomingBody::Unseen,
        ..prompt(0..9)
    };
    site.pipeline.refused(&incoming, &Rejection::new(ErrorKind::BodyTooLarge, "too large"));
    let kept = &site.decisions.of_request("r")[0];
    let shown = serde_json::to_value(Shown::from(&*kept.record)).unwrap();
    assert_eq!(
        (&shown["rejection"]["kind"], &shown["rejection"]["status"]),
        (&"body_too_large".into(), &413.into())
    );
    assert_eq!(
        (&shown["tenant"], &shown["model"], &shown["call"]),
        (&"acme".into(), &"m".into(), &"completions".into())
    );
    assert_eq!(stages(kept), [Stage::Buffer]);
    let one = Incoming { kind: RequestKind::Models(Some("only".into())), ..incoming };
    site.pipeline.refused(&Incoming { model: None, ..one }, &Rejection::new(ErrorKind::PoolNotFound, "no"));
    assert_eq!(site.decisions.of_request("r")[0].record.model.as_deref(), Some("only"));
    let text = site.metrics.render();
    for kind in ["body_too_large", "pool_not_found"] {
        let line = format!("kinference_rejections_total{{kind=\"{kind}\",tenant=\"_other\"}} 1\n");
        assert!(text.contains(&line), "{text}");
    }
    assert!(text.contains("kinference_decision_seconds_count 0\n"), "it is no decision");
}
