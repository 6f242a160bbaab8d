//! `GET /api/events`: frames to one listener, as server-sent events.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::{Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response, Sse, sse::Event},
};
use futures::{Stream, stream};
use serde::Deserialize;
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::timeout,
};

use super::{MOST_LISTENERS, frame::Frame, listener::Listener, now_ms};
use crate::admin::Admin;

/// Longest silence: after it a listener is told that nothing is new, so that it knows a dead connection from a quiet one.
const BEAT: Duration = Duration::from_secs(5);

/// What a listener asks for.
#[derive(Deserialize)]
pub(in crate::admin) struct Asked {
    /// Words that a worker's name, set, models, address or place must have.
    #[serde(default)]
    search: String,
}

/// One listener and its place among them.
struct Seat {
    listener: Listener,
    frames: watch::Receiver<Arc<Frame>>,
    _permit: OwnedSemaphorePermit,
}

/// Answers with an endless stream; 503 where there are too many already.
pub(in crate::admin) async fn events(
    State(admin): State<Arc<Admin>>,
    Query(asked): Query<Asked>,
) -> Response {
    let Ok(permit) = admin.dashboard.live.seats.clone().try_acquire_owned() else {
        let said = format!("{MOST_LISTENERS} dashboards are open on this server already: close one.\n");
        return (StatusCode::SERVICE_UNAVAILABLE, said).into_response();
    };
    let listener = Listener::new(&asked.search, admin.dashboard.max_workers);
    let seat = Seat { listener, frames: admin.dashboard.live.listen(), _permit: permit };
    let nosniff = [(header::X_CONTENT_TYPE_OPTIONS, "nosniff"), (header::CACHE_CONTROL, "no-store")];
    (nosniff, Sse::new(told(seat))).into_response()
}

fn told(seat: Seat) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(seat, async |mut seat| {
        loop {
            match timeout(BEAT, seat.frames.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => {
                    let beat = Event::default().event("beat").data(format!("{{\"now_ms\":{}}}", now_ms()));
                    return Some((Ok(beat), seat));
                }
            }
            let frame = seat.frames.borrow_and_update().clone();
            if let Some(message) = seat.listener.see(&frame) {
                return Some((Ok(Event::default().event(message.event).data(message.data)), seat));
            }
        }
    })
}
