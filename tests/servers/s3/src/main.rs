//! A server of S3's protocol for tests: files of a folder, behind a slow and faulty network.
//!
//! ```text
//! s3-server ROOT [KEY SECRET]     prints "listening on PORT"; serves ROOT/BUCKET/KEY at http://127.0.0.1:PORT/BUCKET/KEY
//! POST /-/faults                  a JSON object: the faults from now on, see `Faults`
//! GET  /-/counts                  a JSON object: requests, bytes and faults since the last POST
//! ```
//!
//! The protocol is that of the crate `s3s`; this program adds the network. Which request has which fault depends on the
//! seed and on the number of the request alone.

mod files;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use files::Files;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

type Failure = Box<dyn Error + Send + Sync>;
type Answer = http_body_util::combinators::UnsyncBoxBody<Bytes, Failure>;

/// What goes wrong with a request. The parts are tried in this order.
const KINDS: [&str; 9] = [
    "503", "429", "403", "html", "reset", "short", "wrong", "repeat", "stall",
];

/// What the network does.
#[derive(Clone, Default)]
struct Faults {
    /// Time before each answer, in milliseconds, and up to how much more.
    latency: u64,
    jitter: u64,
    /// Bytes a second of all answers together; 0: no limit.
    rate: u64,
    seed: u64,
    /// Requests whose path lacks this text have no faults.
    of: String,
    /// By kind, the part of the requests that have it, 0 to 1.
    parts: BTreeMap<&'static str, f64>,
}

impl Faults {
    fn parse(text: &Value) -> Self {
        let number = |name: &str| text[name].as_u64().unwrap_or(0);
        Self {
            latency: number("latency_ms"),
            jitter: number("jitter_ms"),
            rate: number("bytes_per_second"),
            seed: number("seed"),
            of: text["path"].as_str().unwrap_or("").to_owned(),
            parts: KINDS
                .iter()
                .map(|kind| (*kind, text[*kind].as_f64().unwrap_or(0.0)))
                .collect(),
        }
    }

    fn draw(&self, number: u64, path: &str) -> Option<&'static str> {
        let mut rest = uniform(self.seed, 2 * number);
        if !path.contains(&self.of) {
            return None;
        }
        self.parts.iter().find_map(|(kind, part)| {
            rest -= part;
            (rest < 0.0).then_some(*kind)
        })
    }

    fn wait(&self, number: u64) -> Duration {
        let more = uniform(self.seed, 2 * number + 1) * self.jitter as f64;
        Duration::from_micros(self.latency * 1000 + (more * 1000.0) as u64)
    }
}

/// A number from 0 to 1 for a counter: splitmix64.
fn uniform(seed: u64, counter: u64) -> f64 {
    let mut x = seed.wrapping_add(counter.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// What all connections share.
struct Network {
    faults: Mutex<Faults>,
    requests: AtomicU64,
    sent: AtomicU64,
    happened: Mutex<BTreeMap<&'static str, u64>>,
    methods: Mutex<BTreeMap<String, u64>>,
    /// When the line is free again.
    free: Mutex<Instant>,
}

impl Network {
    fn new() -> Self {
        Self {
            faults: Mutex::default(),
            requests: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            happened: Mutex::default(),
            methods: Mutex::default(),
            free: Mutex::new(Instant::now()),
        }
    }

    /// When some bytes have passed the line.
    fn pass(&self, nbytes: usize, rate: u64) -> Option<Instant> {
        self.sent.fetch_add(nbytes as u64, Ordering::Relaxed);
        if rate == 0 {
            return None;
        }
        let mut free = self.free.lock().expect("no thread panics with it");
        *free = (*free).max(Instant::now()) + Duration::from_secs_f64(nbytes as f64 / rate as f64);
        Some(*free)
    }

    fn counts(&self) -> Value {
        json!({
            "requests": self.requests.load(Ordering::Relaxed),
            "bytes": self.sent.load(Ordering::Relaxed),
            "faults": *self.happened.lock().expect("no thread panics with it"),
            "methods": *self.methods.lock().expect("no thread panics with it"),
        })
    }

    fn set(&self, faults: Faults) {
        *self.faults.lock().expect("no thread panics with it") = faults;
        self.requests.store(0, Ordering::Relaxed);
        self.sent.store(0, Ordering::Relaxed);
        self.happened.lock().expect("no thread panics with it").clear();
        self.methods.lock().expect("no thread panics with it").clear();
    }
}

/// The body of an answer as it comes through the network.
struct Through {
    inner: s3s::Body,
    network: Arc<Network>,
    rate: u64,
    fault: Option<&'static str>,
    /// Bytes until a fault of the body.
    until: u64,
    waiting: Option<(Pin<Box<Sleep>>, Bytes)>,
}

impl Through {
    /// A part of the body with its fault.
    fn damage(&mut self, data: Bytes) -> Result<Bytes, Failure> {
        let at = self.until as usize;
        if self.fault.is_none() || at >= data.len() {
            self.until = self.until.saturating_sub(data.len() as u64);
            return Ok(data);
        }
        match self.fault.take() {
            Some("short") => Err("the connection is closed within the body".into()),
            Some("wrong") => {
                let mut changed = data.to_vec();
                changed[at] ^= 0x10;
                Ok(changed.into())
            }
            Some("repeat") => {
                let mut changed = data.to_vec();
                changed.copy_within(0..data.len() / 2, data.len() - data.len() / 2);
                Ok(changed.into())
            }
            _ => Ok(data),
        }
    }
}

impl Body for Through {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        loop {
            if let Some((mut wait, data)) = self.waiting.take() {
                if wait.as_mut().poll(cx).is_pending() {
                    self.waiting = Some((wait, data));
                    return Poll::Pending;
                }
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            let frame = match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            };
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(other) => return Poll::Ready(Some(Ok(other))),
            };
            let data = match self.damage(data) {
                Ok(data) => data,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            match self.network.pass(data.len(), self.rate) {
                Some(when) => self.waiting = Some((Box::pin(sleep_until(when)), data)),
                None => return Poll::Ready(Some(Ok(Frame::data(data)))),
            }
        }
    }
}

fn whole(status: StatusCode, kind: &str, content: String) -> Response<Answer> {
    let body = Full::new(Bytes::from(content))
        .map_err(|never: Infallible| match never {})
        .boxed_unsync();
    Response::builder()
        .status(status)
        .header("content-type", kind)
        .body(body)
        .expect("its parts are constants")
}

fn refusal(status: StatusCode, code: &str) -> Response<Answer> {
    let content = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{code}</Message></Error>");
    whole(status, "application/xml", content)
}

async fn control(network: &Network, request: Request<Incoming>) -> Result<Response<Answer>, Failure> {
    if request.method() == http::Method::POST {
        let content = request.into_body().collect().await?.to_bytes();
        network.set(Faults::parse(&serde_json::from_slice(&content)?));
    }
    Ok(whole(StatusCode::OK, "application/json", network.counts().to_string()))
}

async fn answer(
    network: Arc<Network>,
    service: S3Service,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Failure> {
    let path = request.uri().path().to_owned();
    if path.starts_with("/-/") {
        return control(&network, request).await;
    }
    let number = network.requests.fetch_add(1, Ordering::Relaxed);
    *network
        .methods
        .lock()
        .expect("no thread panics with it")
        .entry(request.method().to_string())
        .or_default() += 1;
    let faults = network.faults.lock().expect("no thread panics with it").clone();
    sleep(faults.wait(number)).await;
    let fault = faults.draw(number, &path);
    if let Some(kind) = fault {
        *network
            .happened
            .lock()
            .expect("no thread panics with it")
            .entry(kind)
            .or_default() += 1;
    }
    match fault {
        Some("503") => return Ok(refusal(StatusCode::SERVICE_UNAVAILABLE, "SlowDown")),
        Some("429") => return Ok(refusal(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests")),
        Some("403") => return Ok(refusal(StatusCode::FORBIDDEN, "AccessDenied")),
        Some("html") => {
            let page = "<!DOCTYPE html><html><body>Please sign in to the network.</body></html>";
            return Ok(whole(StatusCode::OK, "text/html", page.to_owned()));
        }
        Some("reset") => return Err("the connection is reset".into()),
        Some("stall") => sleep(Duration::from_secs(3600)).await,
        _ => {}
    }
    let response = service
        .call(request.map(s3s::Body::from))
        .await
        .map_err(|error| format!("{error:?}"))?;
    let until = (uniform(faults.seed ^ 0x5EED, number) * 4096.0) as u64;
    Ok(response.map(|inner| {
        Through {
            inner,
            network,
            rate: faults.rate,
            fault,
            until,
            waiting: None,
        }
        .boxed_unsync()
    }))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let root = PathBuf::from(given.first().ok_or("usage: s3-server ROOT [KEY SECRET]")?);
    let mut builder = S3ServiceBuilder::new(Files::new(root));
    if let [_, key, secret] = &given[..] {
        builder.set_auth(SimpleAuth::from_single(key.clone(), secret.clone()));
    }
    let service = builder.build();
    let network = Arc::new(Network::new());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("listening on {}", listener.local_addr()?.port());
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let (network, service) = (network.clone(), service.clone());
        tokio::spawn(async move {
            let each = service_fn(move |request| answer(network.clone(), service.clone(), request));
            // an error here is a fault, or a client that has gone
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), each)
                .await;
        });
    }
}
