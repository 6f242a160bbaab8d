//! The fit by known truths, and by properties over any observations.

use proptest::prelude::*;

use super::{
    fit::{Equation, Fit},
    terms::dot,
    *,
};
use crate::{
    config::PredictorConfig,
    load::{Ahead, LoadView, Prefill},
    route::Cost,
    types::Overlap,
};

/// Numbers that look random, within 0..1.
fn noise() -> impl FnMut() -> f64 {
    let mut state = 7_u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn prior() -> Vector {
    coefficients(&PredictorConfig::default())
}

/// A card that is far from the documented one.
const TRUTH: Vector = [12.0, 7.0, 0.55, 0.0003, 1000.0, 0.0, 0.0, 10_000.0];

fn taught(count: usize, mut odd: impl FnMut(usize) -> Option<f64>) -> Learner {
    let (mut learner, mut random) = (Learner::new(prior()), noise());
    for index in 0..count {
        let (uncached, blocks) = (random() * 200.0, 200.0 + random() * 100.0);
        let running = (random() * 8.0).floor();
        let share = if running < 5.0 { (running / 2.0).min((5.0 - running) / 3.0) } else { 0.0 };
        let x = [1.0, f64::from(running > 0.0), uncached, uncached * blocks, 0.0, share, 0.0, 0.0];
        let features = Features { x, drained_ms: 0.0 };
        let observed_ms = odd(index).unwrap_or_else(|| dot(&x, &TRUTH) * (0.95 + random() * 0.1));
        let (configured_ms, calibrated_ms) = (features.predict(&prior()), features.predict(learner.theta()));
        learner.observe(&Observation { features, configured_ms, calibrated_ms, observed_ms });
    }
    learner
}

#[test]
fn another_card_is_learnt_and_what_never_shows_stays_as_configured() {
    let learner = taught(500, |_| None);
    for (term, (got, want)) in Term::ALL.into_iter().zip(learner.theta().iter().zip(TRUTH)) {
        assert!((got - want).abs() <= 0.15 * want + 2.0, "{term:?}: {got} {want}");
    }
    let learner = taught(1000, |_| None);
    let errors = learner.errors();
    assert_eq!(errors.count(), 500);
    assert!(errors.calibrated().mape < 0.04, "{:?}", errors.calibrated());
    assert!(
        errors.configured().mape > 2.0 && errors.configured().bias_ms > 300.0,
        "{:?}",
        errors.configured()
    );
}

#[test]
fn outliers_hardly_count() {
    let learner = taught(1000, |index| match index % 20 {
        3 => Some(60_000.0),
        11 => Some(1.0),
        _ => None,
    });
    for (got, want) in learner.theta().iter().zip(TRUTH).take(4) {
        assert!((got - want).abs() <= 0.2 * want + 3.0, "{:?}", learner.theta());
    }
}

#[test]
fn a_change_of_the_engine_is_followed() {
    let mut learner = taught(2000, |_| None);
    let features = Features { x: [1.0, 1.0, 100.0, 20_000.0, 0.0, 0.0, 0.0, 0.0], drained_ms: 0.0 };
    for _ in 0..1000 {
        let (configured_ms, calibrated_ms) = (0.0, 0.0);
        learner.observe(&Observation { features, configured_ms, calibrated_ms, observed_ms: 900.0 });
    }
    let now = features.predict(learner.theta());
    assert!((now - 900.0).abs() < 45.0, "{now}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut learner = Learner::new(prior());
    let features = Features { x: [1.0; TERMS], drained_ms: 0.0 };
    for observed_ms in [f64::NAN, f64::INFINITY, 1e300, 3_600_001.0] {
        let seen = Observation { features, configured_ms: 1.0, calibrated_ms: 1.0, observed_ms };
        assert_eq!(learner.observe(&seen), Taken::Refused, "{observed_ms}");
    }
    assert_eq!(*learner.theta(), prior());
    assert_eq!(learner.errors().count(), 0);
}

#[test]
fn errors_are_told_as_shares_and_in_milliseconds() {
    let mut errors = Errors::default();
    assert_eq!(errors.calibrated(), Accuracy::default());
    for (observed_ms, calibrated_ms) in [(100.0, 110.0), (200.0, 160.0), (400.0, 400.0)] {
        errors.add(errors::Judged { observed_ms, configured_ms: 0.0, calibrated_ms });
    }
    let Accuracy { mape, p90_ms, bias_ms } = errors.calibrated();
    assert!((mape - 0.1).abs() < 1e-12, "{mape}");
    assert_eq!((p90_ms, bias_ms, errors.configured().mape), (40.0, -10.0, 1.0));
}

#[test]
fn terms_add_up_to_the_prediction() {
    let fitted =
        with_coefficients(&PredictorConfig::default(), &[10.0, 20.0, 0.5, 0.001, 30.0, 40.0, 50.0, 60.0]);
    // 60 ms of the head, 35 ms of another one, 120 ms of a third.
    let head = Prefill::of(100.0, 100.0);
    let waiting = head + Prefill::of(50.0, 200.0) + Prefill::of(200.0, 100.0);
    let cases = [
        (20.0, false, 195.0),
        (20.0, true, 202.0),
        (5.0, true, 215.0),
        (80.0, false, 135.0),
        // A head that may hang has no more than three times its work done.
        (1e6, false, 35.0),
    ];
    for (index, (worked_ms, began_idle, left_ms)) in cases.into_iter().enumerate() {
        let (kv_usage, confirmed) = [(0.95, 0), (0.5, 30), (0.95, 30)][index % 3];
        let ahead = Ahead { waiting, head, worked_ms, began_idle };
        let load =
            LoadView { ahead, queue: 3.0, running: 3.0, kv_usage, backlog_ms: 1e9, ..LoadView::default() };
        let overlap = Overlap { confirmed, any_tier: confirmed, expected: confirmed };
        let cost = Cost { predictor: &fitted, inflight_tracking: true, blocks: 80, overlap, load: &load };
        let prediction = predict_calibrated(cost, &fitted);
        let in_terms = Features::of(&prediction, &fitted, &ahead).predict(&coefficients(&fitted));
        assert!((prediction.ttft_ms - in_terms).abs() < 1e-6, "{prediction:?} {in_terms}");
        assert!(prediction.calibrated);
        assert!((prediction.backlog_ms - left_ms).abs() < 1e-9, "{prediction:?} {left_ms}");
    }
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        -1e3..1e6,
        (-300.0..300.0).prop_map(|e: f64| 10_f64.powf(e)),
    ]
}

fn any_features() -> impl Strategy<Value = Features> {
    (prop::array::uniform8(any_number()), any_number()).prop_map(|(x, drained_ms)| Features { x, drained_ms })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn coefficients_stay_finite_and_in_range(
        prior in prop::array::uniform8(0.0..1e15),
        seen in prop::collection::vec((any_features(), any_number()), 0..60),
    ) {
        let [base_ms, forward_pass_ms, queue, .., cold] = prior;
        let config = PredictorConfig {
            base_ms,
            forward_pass_ms,
            queue_ms_per_entry: queue,
            saturated_cold_ms_per_entry: cold,
            ..PredictorConfig::default()
        };
        let mut learner = Learner::new(coefficients(&config));
        for (features, observed_ms) in seen {
            let judged = features.predict(learner.theta());
            let seen = Observation { features, configured_ms: judged, calibrated_ms: judged, observed_ms };
            learner.observe(&seen);
            for (term, value) in Term::ALL.into_iter().zip(learner.theta()) {
                prop_assert!((0.0..=term.most()).contains(value), "{term:?} {value}");
            }
            for accuracy in [learner.errors().configured(), learner.errors().calibrated()] {
                prop_assert!(accuracy.mape.is_finite() && accuracy.bias_ms.is_finite(), "{accuracy:?}");
            }
        }
    }

    #[test]
    fn what_is_known_is_bounded(x in prop::array::uniform8(0.0..100.0)) {
        let mut fit = Fit::new(prior());
        for _ in 0..600 {
            fit.observe(Equation { x, y: 100.0, weight: 1.0, keep: fit::KEEP });
        }
        // Forgetting sums to 500 observations; nothing that is never seen winds up.
        let kept = fit.kept();
        for i in 0..TERMS {
            for j in 0..TERMS {
                prop_assert!(kept.information[i][j] <= 500.1 * x[i] * x[j] + 1e-9);
                prop_assert_eq!(kept.information[i][j], kept.information[j][i]);
            }
        }
    }
}

#[test]
fn what_is_kept_is_taken_up_again_unless_it_is_broken() {
    let learner = taught(300, |_| None);
    let text = serde_json::to_string(&learner.kept()).unwrap();
    let kept: Kept = serde_json::from_str(&text).unwrap();
    let again = Learner::restored(prior(), &kept).unwrap();
    for (a, b) in again.theta().iter().zip(learner.theta()) {
        assert!((a - b).abs() <= 1e-9 * b, "{a} {b}");
    }
    let broken = |change: fn(&mut Kept)| {
        let mut kept = kept.clone();
        change(&mut kept);
        Learner::restored(prior(), &kept).is_none()
    };
    assert!(broken(|kept| kept.fit.information[0][0] = f64::NAN));
    assert!(broken(|kept| kept.fit.information[2][2] = -1.0));
    assert!(broken(|kept| kept.fit.information[0][1] += 1.0));
    assert!(broken(|kept| kept.fit.moment[3] = f64::INFINITY));
    assert!(broken(|kept| kept.typical = 0.0));
}
