//! A small server for real clients: it answers as its paths say, and remembers what it was asked.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use futures_util::StreamExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// How much of a body is under way at once.
#[derive(Default)]
pub(crate) struct Stream {
    made: AtomicUsize,
    read: AtomicUsize,
    most_between: AtomicUsize,
}

impl Stream {
    const CHUNK: usize = 64 << 10;

    /// `bytes` of body, made when they are asked for.
    pub(crate) fn body(
        self: &Arc<Self>,
        bytes: usize,
    ) -> impl futures_util::Stream<Item = Result<Bytes, std::io::Error>> + Send + use<> {
        static CHUNK: [u8; Stream::CHUNK] = [7; Stream::CHUNK];
        let stream = Arc::clone(self);
        futures_util::stream::iter(0..bytes / Self::CHUNK).map(move |_| {
            stream.made.fetch_add(Self::CHUNK, Ordering::Relaxed);
            Ok(Bytes::from_static(&CHUNK))
        })
    }

    pub(crate) fn read(&self, bytes: usize) {
        let read = self.read.fetch_add(bytes, Ordering::Relaxed);
        let between = self.made.load(Ordering::Relaxed).saturating_sub(read);
        self.most_between.fetch_max(between, Ordering::Relaxed);
    }

    /// Everything arrived, and never was more of it on the way than sockets and clients hold.
    pub(crate) fn passed_through(&self, bytes: usize) {
        assert_eq!(self.read.load(Ordering::Relaxed), bytes);
        let most = self.most_between.load(Ordering::Relaxed);
        assert!(most < 24 << 20, "{most} bytes were held back on the way");
    }
}

#[derive(Default)]
struct Shared {
    asked: Mutex<Vec<String>>,
    down: Arc<Stream>,
    up: Arc<Stream>,
}

pub(crate) struct Api {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

/// Longer than anything that could be held back unnoticed.
pub(crate) const LARGE: usize = 256 << 20;

impl Api {
    pub(crate) async fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let app = Router::new().fallback(any(answer)).with_state(Arc::clone(&shared));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, shared }
    }

    /// The paths that it was asked for, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// The body of `/large`.
    pub(crate) fn down(&self) -> &Stream {
        &self.shared.down
    }

    /// What was sent to `/sink`.
    pub(crate) fn up(&self) -> &Arc<Stream> {
        &self.shared.up
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (path, query) = (request.uri().path().to_owned(), request.uri().query().map(str::to_owned));
    let times = {
        let mut asked = shared.asked.lock().unwrap();
        asked.push(path.clone());
        asked.iter().filter(|known| **known == path).count()
    };
    let fields = |pairs: &[(&'static str, &str)]| {
        let pairs = pairs.iter().map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_str(value).unwrap())
        });
        pairs.collect::<HeaderMap>()
    };
    match path.as_str() {
        // What the path speaks of is limited so.
        "/limited" => {
            let said = [("x-ratelimit-limit", "60"), ("x-ratelimit-remaining", "7")];
            (fields(&said), "{}").into_response()
        }
        // Twice no, then yes.
        "/busy" if times < 3 => (StatusCode::SERVICE_UNAVAILABLE, "busy").into_response(),
        "/stop" if times < 3 => {
            (StatusCode::TOO_MANY_REQUESTS, fields(&[("retry-after-ms", "30")])).into_response()
        }
        "/never" => (StatusCode::SERVICE_UNAVAILABLE, "never").into_response(),
        "/stop-for-long" => {
            let said = fields(&[("retry-after", "3600")]);
            (StatusCode::TOO_MANY_REQUESTS, said, "in an hour").into_response()
        }
        "/elsewhere" => {
            let target = fields(&[("location", &query.unwrap())]);
            (StatusCode::TEMPORARY_REDIRECT, target).into_response()
        }
        "/large" => Body::from_stream(shared.down.body(LARGE)).into_response(),
        "/sink" => {
            let mut body = request.into_body().into_data_stream();
            while let Some(chunk) = body.next().await {
                shared.up.read(chunk.unwrap().len());
            }
            "{}".into_response()
        }
        "/slow" => std::future::pending().await,
        _ => "{}".into_response(),
    }
}
