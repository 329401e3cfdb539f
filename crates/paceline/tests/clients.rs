//! Real clients, paced, against a real server.
#![cfg(not(loom))]

mod api;

use api::{Api, LARGE, Stream};
use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use paceline::reqwest::RateLimitMiddleware;
use paceline::retry::RetryConfig;
use paceline::tower::{RateLimitLayer, Retry};
use paceline::{Amount, Cost, Error, Limit, Limiter, Paced};
use reqwest_middleware::ClientWithMiddleware;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt};

/// A hundred an hour of everything: what is left tells what was charged.
fn limited(url: &str) -> Limiter {
    let limiter = Limiter::builder().build();
    limiter.set_limit(url, Limit::parse("100/1h").unwrap()).unwrap();
    limiter.set_limit(url, Limit::parse("tokens=100/1h").unwrap()).unwrap();
    limiter
}

/// What is left of both.
fn left(limiter: &Limiter, url: &str) -> (u64, u64) {
    let (_, status) = limiter.status(url).unwrap().expect("a limited scope");
    let of = |name: &str| {
        let mut limits = status.limits.iter();
        let limit = limits.find(|it| it.limit.dimension.as_str() == name).expect("a limit");
        limit.remaining.whole()
    };
    (of("requests"), of("tokens"))
}

fn tokens(amount: u64) -> Cost {
    Cost::ONE.with("tokens", Amount::units(amount)).unwrap()
}

fn quick() -> RetryConfig {
    RetryConfig { base_delay: Duration::from_millis(5), ..RetryConfig::default() }
}

fn hyper() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}

fn get(url: &str) -> Request<Full<Bytes>> {
    Request::get(url).body(Full::default()).unwrap()
}

fn middleware(limiter: &Limiter) -> ClientWithMiddleware {
    with(RateLimitMiddleware::new(limiter.clone()).retry(quick()))
}

fn with(middleware: RateLimitMiddleware) -> ClientWithMiddleware {
    reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).with(middleware).build()
}

fn paced(extensions: &http::Extensions) -> Paced {
    extensions.get::<Paced>().expect("a paced response").clone()
}

/// A port that nobody listens at.
async fn nobody() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

async fn text(response: Response<impl axum::body::HttpBody<Error: std::fmt::Debug>>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn hyper_util_takes_a_permit_for_each_request_and_learns_from_the_answer() {
    let api = Api::start().await;
    let limiter = Limiter::builder().build();
    let client = RateLimitLayer::new(limiter.clone()).layer(hyper());
    let request = get(&format!("{}/limited?key=1", api.url));
    let response = tokio::spawn(client.oneshot(request)).await.unwrap().unwrap();
    let paced = paced(response.extensions());
    assert_eq!((paced.scope, paced.attempts), (api.url.clone(), 1));
    assert_eq!(text(response).await, "{}");
    let (_, status) = limiter.status(&api.url).unwrap().expect("it was learned");
    assert_eq!(status.limits[0].limit.units, 60);
    assert_eq!(status.limits[0].remaining.whole(), 7);
}

#[tokio::test]
async fn a_cost_comes_with_the_request_or_else_from_the_closure_and_is_settled_later() {
    let api = Api::start().await;
    let limiter = limited(&api.url);
    let layer =
        RateLimitLayer::new(limiter.clone()).cost(|request| match request.method().as_str() {
            "POST" => tokens(30),
            _ => Cost::ONE,
        });
    let mut client = layer.layer(hyper());
    client.ready().await.unwrap().call(get(&api.url)).await.unwrap();
    assert_eq!(left(&limiter, &api.url), (99, 100));

    let post = Request::post(&api.url).body(Full::default()).unwrap();
    client.ready().await.unwrap().call(post.clone()).await.unwrap();
    assert_eq!(left(&limiter, &api.url), (98, 70));

    let mut known = post;
    known.extensions_mut().insert(tokens(50));
    let response = client.ready().await.unwrap().call(known).await.unwrap();
    assert_eq!(left(&limiter, &api.url), (97, 20));
    paced(response.extensions()).settle(&[("tokens", 10.0)]).unwrap();
    assert_eq!(left(&limiter, &api.url), (97, 60));
}

#[tokio::test]
async fn rule_17_clients_with_different_credentials_are_different_accounts() {
    let api = Api::start().await;
    let limiter = Limiter::builder().max_wait(Duration::ZERO).build();
    limiter.set_limit(&api.url, Limit::parse("1/1h").unwrap()).unwrap();
    for team in ["a", "b"] {
        let mut client = RateLimitLayer::new(limiter.clone()).account(team).layer(hyper());
        client.ready().await.unwrap().call(get(&api.url)).await.unwrap();
        let error = client.oneshot(get(&api.url)).await.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(Error::Refused(_))), "{error}");
        let pace = RateLimitMiddleware::new(limiter.clone()).account(team);
        assert!(with(pace).get(&api.url).send().await.unwrap_err().is_middleware());
    }
    assert_eq!(api.asked().len(), 2);
}

#[tokio::test]
async fn rule_24_every_attempt_of_a_retry_above_the_layer_takes_a_permit() {
    let api = Api::start().await;
    let limiter = limited(&api.url);
    let mut client = ServiceBuilder::new()
        .retry(Retry::new(quick()))
        .layer(RateLimitLayer::new(limiter.clone()))
        .service(hyper());
    let mut request = get(&format!("{}/busy", api.url));
    request.extensions_mut().insert(tokens(5));
    let response = client.ready().await.unwrap().call(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let paced = paced(response.extensions());
    assert_eq!(paced.attempts, 3);
    assert!(paced.waited >= Duration::from_millis(13), "5 and 10 ms, less a tenth of jitter");
    assert_eq!(left(&limiter, &api.url), (97, 85));
    assert_eq!(api.asked().len(), 3);
}

#[tokio::test]
async fn rule_26_the_last_response_of_a_retry_is_handed_back_unread() {
    let api = Api::start().await;
    let url = format!("{}/never", api.url);
    let client = ServiceBuilder::new()
        .retry(Retry::new(quick()))
        .layer(RateLimitLayer::new(limited(&api.url)))
        .service(hyper());
    let response = client.oneshot(get(&url)).await.unwrap();
    assert_eq!(paced(response.extensions()).attempts, 4);
    assert_eq!(
        (response.status(), text(response).await),
        (StatusCode::SERVICE_UNAVAILABLE, "never".into())
    );

    let response = middleware(&limited(&api.url)).get(&url).send().await.unwrap();
    assert_eq!(paced(response.extensions()).attempts, 4);
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.text().await.unwrap(), "never");
    assert_eq!(api.asked().len(), 8);
}

#[tokio::test]
async fn rule_13_a_retry_waits_for_as_long_as_the_server_said() {
    let long_enough = |begun: Instant, extensions: &http::Extensions| {
        let paced = paced(extensions);
        assert_eq!(paced.attempts, 3);
        assert!(begun.elapsed() >= Duration::from_millis(60), "twice 30 ms");
        assert!((50..900).contains(&paced.waited.as_millis()), "{:?}", paced.waited);
    };
    let (api, begun) = (Api::start().await, Instant::now());
    let client = ServiceBuilder::new()
        .retry(Retry::default())
        .layer(RateLimitLayer::new(Limiter::builder().build()))
        .service(hyper());
    let response = client.oneshot(get(&format!("{}/stop", api.url))).await.unwrap();
    long_enough(begun, response.extensions());

    let (api, begun) = (Api::start().await, Instant::now());
    let client = with(RateLimitMiddleware::new(Limiter::builder().build()));
    let response = client.get(format!("{}/stop", api.url)).send().await.unwrap();
    long_enough(begun, response.extensions());
}

#[tokio::test]
async fn rule_21_a_wait_that_is_too_long_is_an_error_at_once_with_the_servers_full_number() {
    let api = Api::start().await;
    let url = format!("{}/stop-for-long", api.url);
    let limiter = || Limiter::builder().max_wait(Duration::from_secs(5)).build();
    let refused = |error: &Error| match error {
        Error::Refused(refused) => (refused.scope.clone(), refused.retry_after.as_secs()),
        other => panic!("{other}"),
    };
    let client = ServiceBuilder::new()
        .retry(Retry::default())
        .layer(RateLimitLayer::new(limiter()))
        .service(hyper());
    let error = client.oneshot(get(&url)).await.unwrap_err();
    assert_eq!(refused(error.downcast_ref().expect("our error")), (api.url.clone(), 3600));

    let client = middleware(&limiter());
    let error = client.get(&url).send().await.unwrap_err();
    let reqwest_middleware::Error::Middleware(error) = error else { panic!("{error}") };
    assert_eq!(refused(error.downcast_ref().expect("our error")), (api.url.clone(), 3600));
    assert_eq!(api.asked().len(), 2);
}

#[tokio::test]
async fn rule_21_a_pause_that_is_too_long_hands_the_answer_back_instead() {
    let api = Api::start().await;
    let limiter = || Limiter::builder().max_wait(Duration::from_millis(8)).build();
    let client = ServiceBuilder::new()
        .retry(Retry::new(quick()))
        .layer(RateLimitLayer::new(limiter()))
        .service(hyper());
    let response = client.oneshot(get(&format!("{}/busy", api.url))).await.unwrap();
    // There is time for the first pause, of 5 ms, and not for the second, of 10 ms.
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(paced(response.extensions()).attempts, 2);

    let api = Api::start().await;
    let request = middleware(&limiter()).get(format!("{}/busy", api.url));
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(paced(response.extensions()).attempts, 2);
}

#[tokio::test]
async fn a_retry_leaves_alone_what_no_layer_beneath_has_paced() {
    let api = Api::start().await;
    let client = ServiceBuilder::new().retry(Retry::new(quick())).service(hyper());
    let response = client.oneshot(get(&format!("{}/busy", api.url))).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(api.asked().len(), 1);
}

#[tokio::test]
async fn a_request_without_a_host_says_what_is_wrong() {
    let client = RateLimitLayer::new(Limiter::builder().build()).layer(hyper());
    let error = client.oneshot(get("/items")).await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(Error::Invalid(_))), "{error}");
}

#[tokio::test]
async fn a_redirect_above_the_layer_takes_a_permit_for_each_hop() {
    let api = Api::start().await;
    let limiter = limited(&api.url);
    let client = ServiceBuilder::new()
        .layer(tower_http::follow_redirect::FollowRedirectLayer::new())
        .layer(RateLimitLayer::new(limiter.clone()))
        .service(hyper());
    let response = client.oneshot(get(&format!("{}/elsewhere?/items", api.url))).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(api.asked(), ["/elsewhere", "/items"]);
    assert_eq!(left(&limiter, &api.url), (98, 100));
}

#[tokio::test]
async fn the_answer_of_another_server_teaches_nothing_about_this_one() {
    let (api, other) = (Api::start().await, Api::start().await);
    let limiter = Limiter::builder().build();
    let away = format!("{}/elsewhere?{}/limited", api.url, other.url);
    let response = middleware(&limiter).get(away).send().await.unwrap();
    assert_eq!(response.url().as_str(), format!("{}/limited", other.url));
    assert!(limiter.status(&api.url).unwrap().is_none());

    let near = format!("{}/elsewhere?/limited", api.url);
    middleware(&limiter).get(near).send().await.unwrap();
    assert!(limiter.status(&api.url).unwrap().is_some());
}

#[tokio::test]
async fn rule_20_a_connection_that_was_never_made_gives_everything_back() {
    let url = nobody().await;
    let limiter = limited(&url);
    let mut costly = get(&url);
    costly.extensions_mut().insert(tokens(9));
    let client = RateLimitLayer::new(limiter.clone()).layer(hyper());
    client.oneshot(costly).await.unwrap_err();
    assert_eq!(left(&limiter, &url), (100, 100));

    let request = middleware(&limiter).get(&url).with_extension(tokens(9));
    assert!(request.send().await.unwrap_err().is_connect());
    assert_eq!(left(&limiter, &url), (100, 100));

    // Neither does reqwest send what is none of its schemes.
    let odd = url.replace("http:", "gopher:");
    let limiter = limited(&odd);
    assert!(middleware(&limiter).get(&odd).send().await.unwrap_err().is_builder());
    assert_eq!(left(&limiter, &odd), (100, 100));
}

#[tokio::test]
async fn a_limit_beneath_that_refuses_costs_nothing_above() {
    let api = Api::start().await;
    let (outer, inner) = (limited(&api.url), Limiter::builder().max_wait(Duration::ZERO).build());
    inner.set_limit(&api.url, Limit::parse("1/1h").unwrap()).unwrap();
    let mut client = ServiceBuilder::new()
        .layer(RateLimitLayer::new(outer.clone()))
        .layer(RateLimitLayer::new(inner.clone()))
        .service(hyper());
    client.ready().await.unwrap().call(get(&api.url)).await.unwrap();
    client.ready().await.unwrap().call(get(&api.url)).await.unwrap_err();
    assert_eq!(left(&outer, &api.url), (99, 100));

    let stacked = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
        .with(RateLimitMiddleware::new(outer.clone()))
        .with(RateLimitMiddleware::new(inner))
        .build();
    stacked.get(&api.url).send().await.unwrap_err();
    assert_eq!(left(&outer, &api.url), (99, 100));
}

#[tokio::test]
async fn a_request_that_left_and_got_no_answer_is_paid_for() {
    let api = Api::start().await;
    let limiter = limited(&api.url);
    let slow = format!("{}/slow", api.url);
    let client = RateLimitLayer::new(limiter.clone()).layer(hyper());
    let short = Duration::from_millis(40);
    tokio::time::timeout(short, client.oneshot(get(&slow))).await.unwrap_err();
    assert_eq!(left(&limiter, &api.url), (99, 100));
    let request = middleware(&limiter).get(&slow).timeout(short);
    assert!(request.send().await.unwrap_err().is_timeout());
    assert_eq!(left(&limiter, &api.url), (98, 100));
    assert_eq!(api.asked().len(), 2);
}

#[tokio::test]
async fn the_layer_is_ready_when_the_service_beneath_is() {
    let limiter = Limiter::builder().build();
    let one = tower::limit::ConcurrencyLimitLayer::new(1);
    let slow = tower::service_fn(|_: Request<()>| async {
        std::future::pending::<Result<Response<()>, BoxError>>().await
    });
    let mut client = RateLimitLayer::new(limiter).layer(one.layer(slow));
    let request = || Request::get("http://api.example.com").body(()).unwrap();
    let first = client.ready().await.unwrap().call(request());
    let mut second = client.clone();
    let is_ready = |client: &mut paceline::tower::RateLimit<_>| {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        Service::<Request<()>>::poll_ready(client, &mut cx).is_ready()
    };
    assert!(!is_ready(&mut client), "the only place is taken");
    assert!(!is_ready(&mut second));
    drop(first);
    assert!(is_ready(&mut client));
}

#[tokio::test]
async fn reqwest_itself_is_a_service_beneath_the_layer() {
    let api = Api::start().await;
    let limiter = limited(&api.url);
    let layer = RateLimitLayer::new(limiter.clone())
        .cost(|request| tokens(request.body().map_or(0, <[u8]>::len) as u64));
    let client = layer.layer(reqwest::Client::new());
    let request = reqwest::Client::new().post(&api.url).body("twelve bytes").build().unwrap();
    let response = client.oneshot(request).await.unwrap();
    assert_eq!(paced(response.extensions()).attempts, 1);
    assert_eq!(response.text().await.unwrap(), "{}");
    assert_eq!(left(&limiter, &api.url), (99, 88));
}

#[tokio::test]
async fn octocrab_takes_the_layer_beneath_the_one_that_adds_the_host() {
    let api = Api::start().await;
    let limiter = limited(&api.url);
    let client = Client::builder(TokioExecutor::new()).build_http::<octocrab::OctoBody>();
    let base = octocrab::service::middleware::base_uri::BaseUriLayer::new(api.url.parse().unwrap());
    let github = octocrab::OctocrabBuilder::new_empty()
        .with_service(client)
        .with_layer(&RateLimitLayer::new(limiter.clone()))
        .with_layer(&base)
        .with_auth(octocrab::AuthState::None)
        .build()
        .unwrap();
    let _: serde::de::IgnoredAny = github.get("/repos/a/b", None::<&()>).await.unwrap();
    assert_eq!(api.asked(), ["/repos/a/b"]);
    assert_eq!(left(&limiter, &api.url), (99, 100));
}

#[tokio::test]
async fn rule_24_the_middleware_takes_a_permit_for_every_attempt() {
    let api = Api::start().await;
    let limiter = limited(&api.url);
    let request = middleware(&limiter).post(format!("{}/busy", api.url)).body("again");
    let response = request.with_extension(tokens(5)).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let paced = paced(response.extensions());
    assert_eq!((paced.attempts, paced.scope), (3, api.url.clone()));
    assert!(paced.waited >= Duration::from_millis(13), "5 and 10 ms, less a tenth of jitter");
    assert_eq!(left(&limiter, &api.url), (97, 85));
}

#[tokio::test]
async fn a_body_that_is_a_stream_is_sent_once() {
    let api = Api::start().await;
    let body = reqwest::Body::wrap_stream(Arc::new(Stream::default()).body(64 << 10));
    let request = middleware(&limited(&api.url)).post(format!("{}/never", api.url)).body(body);
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(paced(response.extensions()).attempts, 1);
    assert_eq!(response.text().await.unwrap(), "never");
}

#[tokio::test]
async fn rule_26_large_bodies_pass_through_the_layer_unbuffered() {
    let api = Api::start().await;
    let layer = RateLimitLayer::new(limited(&api.url));
    let response = layer.layer(hyper()).oneshot(get(&format!("{}/large", api.url))).await.unwrap();
    let mut body = response.into_body().into_data_stream();
    while let Some(chunk) = body.next().await {
        api.down().read(chunk.unwrap().len());
    }
    api.down().passed_through(LARGE);

    let client = Client::builder(TokioExecutor::new()).build_http();
    let body = axum::body::Body::from_stream(api.up().body(LARGE));
    let request = Request::post(format!("{}/sink", api.url)).body(body).unwrap();
    layer.layer(client).oneshot(request).await.unwrap();
    api.up().passed_through(LARGE);
}

#[tokio::test]
async fn rule_26_large_bodies_pass_through_the_middleware_unbuffered() {
    let api = Api::start().await;
    let client = middleware(&limited(&api.url));
    let response = client.get(format!("{}/large", api.url)).send().await.unwrap();
    let mut body = response.bytes_stream();
    while let Some(chunk) = body.next().await {
        api.down().read(chunk.unwrap().len());
    }
    api.down().passed_through(LARGE);

    let body = reqwest::Body::wrap_stream(api.up().body(LARGE));
    client.post(format!("{}/sink", api.url)).body(body).send().await.unwrap();
    api.up().passed_through(LARGE);
}
