//! The sandbox over real sockets: headers, errors, streams and the report.

use paceline_cli::sandbox::{Config, Family, Policy, Rounding, Sandbox};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const CHAT: &str = "/v1/chat/completions";

struct Server {
    sandbox: Sandbox,
    client: Client,
}

fn config(headers: Family, limits: &[&str]) -> Config {
    let parse = |limit: &&str| limit.parse().expect("a limit");
    let limits = limits.iter().map(parse).collect();
    Config { headers, limits, ..Config::default() }
}

impl Server {
    async fn start(config: Config) -> Self {
        let sandbox = Sandbox::start(config).await.expect("a sandbox");
        Self { sandbox, client: Client::new() }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.sandbox.url() + path)
    }

    async fn get(&self, path: &str) -> Response {
        send(self.request(Method::GET, path)).await
    }

    async fn with(&self, name: &str, value: &str) -> Response {
        send(self.request(Method::PUT, "/").header(name, value)).await
    }

    async fn post(&self, path: &str, body: &Value) -> Response {
        send(self.request(Method::POST, path).body(body.to_string())).await
    }

    async fn report(&self) -> Value {
        json(self.get("/_sandbox").await).await
    }

    async fn raw(&self, request: &[u8]) -> String {
        let stream = TcpStream::connect(self.sandbox.addr()).await;
        let (mut stream, mut answer) = (stream.expect("a connection"), Vec::new());
        stream.write_all(request).await.expect("sent");
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }
}

async fn send(request: RequestBuilder) -> Response {
    request.send().await.expect("an answer")
}

async fn json(response: Response) -> Value {
    let text = response.text().await.expect("a body");
    serde_json::from_str(&text).expect("JSON")
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    let value = response.headers().get(name);
    value.map_or("", |value| value.to_str().expect("ASCII"))
}

/// The rate-limit headers in alphabetical order, without their prefix.
fn told(response: &Response) -> String {
    let names = response.headers().keys().map(|name| name.as_str());
    let limits = names.filter_map(|name| Some((name.split_once("ratelimit-")?.1, name)));
    let line = |(short, name)| format!("{short}: {}", header(response, name));
    let mut lines: Vec<String> = limits.map(line).collect();
    lines.sort();
    lines.join(", ")
}

#[tokio::test]
async fn github_headers_count_down_to_an_epoch() {
    let server = Server::start(config(Family::Github, &["2/1h"])).await;
    for (status, remaining, used) in [(200, 1, 1), (200, 0, 2), (429, 0, 2)] {
        let answer = server.get("/user").await;
        let reset = header(&answer, "x-ratelimit-reset").to_owned();
        assert_eq!(
            told(&answer),
            format!(
                "limit: 2, remaining: {remaining}, reset: {reset}, resource: core, used: {used}"
            )
        );
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let ahead = reset.parse::<u64>().expect("an epoch") - now.as_secs();
        assert!((3_590..=3_601).contains(&ahead), "{ahead}");
        assert!(header(&answer, "date").ends_with(" GMT"));
        assert_eq!(header(&answer, "retry-after"), "", "not asked for");
        assert_eq!(answer.status(), status);
        if status == 429 {
            let message = json(answer).await["message"].to_string();
            assert!(message.contains("API rate limit exceeded"), "{message}");
        }
    }
}

#[tokio::test]
async fn openai_headers_name_the_dimension_and_the_time_until_full() {
    let mut config = config(Family::Openai, &["100/10m", "tokens=1000/10m"]);
    config.policy = Policy::Bucket;
    let server = Server::start(config).await;
    let ask = json!({"messages": [{"content": "12345678"}], "max_tokens": 598});
    let answer = server.post(CHAT, &ask).await;
    let requests = "remaining-requests: 99, remaining-tokens: 400, reset-requests: 6s";
    let first = format!("limit-requests: 100, limit-tokens: 1000, {requests}, reset-tokens: 6m0s");
    assert_eq!(told(&answer), first);
    let usage = json(answer).await["usage"].clone();
    assert_eq!(usage["prompt_tokens"], 2);
    let output = usage["completion_tokens"].as_u64();
    assert!(output.is_some_and(|tokens| (1..598).contains(&tokens)));

    let refused = server.post(CHAT, &ask).await;
    assert_eq!(refused.status(), 429);
    assert!(told(&refused).contains("remaining-requests: 99"), "nothing was charged");
    let error = json(refused).await["error"].clone();
    assert_eq!(error["type"], "tokens");
    assert_eq!(error["code"], "rate_limit_exceeded");
}

#[tokio::test]
async fn anthropic_headers_split_input_from_output() {
    let limits = ["input_tokens=1000/1m", "output_tokens=100/1m"];
    let server = Server::start(config(Family::Anthropic, &limits)).await;
    let ask = json!({"system": "1234", "messages": [{"content": "5678"}], "max_tokens": 90});
    let answer = server.post("/v1/messages", &ask).await;
    let reset = header(&answer, "anthropic-ratelimit-input-tokens-reset").to_owned();
    assert!(reset.len() == 20 && reset.ends_with('Z'), "{reset}");
    let expected = "input-tokens-limit: 1000, input-tokens-remaining: 998, input-tokens-reset: @, \
        output-tokens-limit: 100, output-tokens-remaining: 10, output-tokens-reset: @";
    assert_eq!(told(&answer), expected.replace('@', &reset));
    assert_eq!(json(answer).await["type"], "message");
    let refused = json(server.post("/v1/messages", &ask).await).await;
    assert_eq!(refused["type"], "error");
    assert_eq!(refused["error"]["type"], "rate_limit_error");
}

#[tokio::test]
async fn ietf_and_legacy_headers_count_in_seconds_and_none_sends_none() {
    let server = Server::start(config(Family::Ietf, &["5/1m"])).await;
    let answer = server.get("/").await;
    assert_eq!(header(&answer, "ratelimit-policy"), "\"default\";q=5;w=60");
    assert_eq!(header(&answer, "ratelimit"), "\"default\";r=4;t=60");
    let server = Server::start(config(Family::Ietf, &["5/100ms", "9/1h", "tokens=7/1h"])).await;
    let policy = "\"requests\";q=5, \"requests/1h\";q=9;w=3600, \"tokens\";q=7;w=3600";
    assert_eq!(header(&server.get("/").await, "ratelimit-policy"), policy);
    let server = Server::start(config(Family::Legacy, &["5/100ms"])).await;
    assert_eq!(told(&server.get("/").await), "limit: 5, remaining: 4, reset: 1");
    let server = Server::start(config(Family::None, &["5/1m"])).await;
    assert_eq!(told(&server.get("/").await), "");
}

#[tokio::test]
async fn retry_after_is_sent_on_request_and_waiting_it_out_suffices() {
    let mut config = config(Family::Openai, &["1/100ms"]);
    config.retry_after = Some(Rounding::Up);
    let server = Server::start(config).await;
    assert_eq!(header(&server.get("/").await, "retry-after"), "");
    let refused = server.get("/").await;
    assert_eq!(header(&refused, "retry-after"), "1");
    let millis = header(&refused, "retry-after-ms").parse();
    tokio::time::sleep(Duration::from_millis(millis.expect("a number"))).await;
    assert_eq!(server.get("/").await.status(), 200);
}

#[tokio::test]
async fn retry_after_is_rounded_as_asked_and_sent_always_if_asked() {
    let mut config = config(Family::None, &["1/1900ms"]);
    config.policy = Policy::Sliding;
    config.retry_after = Some(Rounding::Down);
    config.retry_after_always = true;
    let server = Server::start(config).await;
    for status in [200, 429] {
        let answer = server.get("/").await;
        assert_eq!((answer.status().as_u16(), header(&answer, "retry-after")), (status, "1"));
    }
}

#[tokio::test]
async fn resets_are_told_rounded_and_late_as_asked() {
    for (rounding, late, told) in
        [(Rounding::Up, 0, 2), (Rounding::Down, 0, 1), (Rounding::Up, 1, 3)]
    {
        let mut config = config(Family::Legacy, &["9/1900ms"]);
        (config.reset_rounding, config.reset_late) = (rounding, Duration::from_secs(late));
        let server = Server::start(config).await;
        assert_eq!(header(&server.get("/").await, "x-ratelimit-reset"), told.to_string());
    }
}

#[tokio::test]
async fn refusals_cost_if_asked() {
    let mut config = config(Family::Legacy, &["tokens=10/1m"]);
    (config.policy, config.refusals_cost) = (Policy::Bucket, true);
    let server = Server::start(config).await;
    for (cost, status, left) in [("tokens=6", 200, "4"), ("tokens=5", 429, "0")] {
        let answer = server.with("x-sandbox-cost", cost).await;
        assert_eq!(answer.status(), status);
        assert_eq!(header(&answer, "x-ratelimit-remaining"), left);
    }
}

#[tokio::test]
async fn the_journal_tells_each_decision_and_what_a_stranger_took() {
    let mut config = config(Family::None, &["10/1s"]);
    (config.policy, config.stranger) = (Policy::FixedClock, "100%".parse().expect("a share"));
    let server = Server::start(config).await;
    let mut statuses = Vec::new();
    for cost in [1, 11, 1] {
        let answer = server.with("x-sandbox-cost", &format!("requests={cost}")).await;
        statuses.push(answer.status() == 200);
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    // One unit each 100 ms: it has taken some before the last request.
    tokio::time::sleep(Duration::from_millis(200)).await;
    statuses.push(server.get("/").await.status() == 200);
    let journal = json(server.get("/_sandbox/journal").await).await;
    let entries = journal.as_array().expect("a list");
    let admitted: Vec<_> = entries.iter().map(|entry| entry["admitted"] == true).collect();
    assert_eq!(admitted, statuses);
    assert_eq!(admitted[..2], [true, false]);
    let requests = |entry: &Value| entry["standings"]["requests"].clone();
    assert_eq!(requests(&entries[0])["stranger"], 0);
    let stranger = requests(&entries[3])["stranger"].as_u64().expect("a count");
    assert!(stranger >= 2, "{stranger}");
    assert!(entries.windows(2).all(|pair| pair[0]["at"].as_f64() < pair[1]["at"].as_f64()));
}

#[tokio::test]
async fn jitter_delays_the_count_and_the_answer() {
    let mut config = config(Family::None, &["1000/1h"]);
    config.jitter = Duration::from_millis(40);
    let server = Server::start(config).await;
    let (mut before, mut after) = (Duration::ZERO, Duration::ZERO);
    for n in 0..10 {
        let sent = SystemTime::now();
        server.get("/").await;
        let answered = SystemTime::now();
        let journal = json(server.get("/_sandbox/journal").await).await;
        let at = journal[n]["at"].as_f64().map(Duration::from_secs_f64);
        let counted = UNIX_EPOCH + at.expect("a time");
        before += counted.duration_since(sent).unwrap_or_default();
        after += answered.duration_since(counted).unwrap_or_default();
    }
    // Twenty milliseconds each on average.
    for sum in [before, after] {
        assert!(sum > Duration::from_millis(60), "{before:?} {after:?}");
    }
}

#[tokio::test]
async fn stated_costs_replace_estimates_and_bad_ones_are_refused() {
    let server = Server::start(config(Family::Ietf, &["9/1h", "tokens=9/1h", "foo=9/1h"])).await;
    let spend = |cost| server.with("x-sandbox-cost", cost);
    let answer = spend("tokens=5, foo=3,requests=2,unknown=1").await;
    let standing = "\"requests\";r=7;t=3600, \"tokens\";r=4;t=3600, \"foo\";r=6;t=3600";
    assert_eq!(header(&answer, "ratelimit"), standing);
    for (cost, status, part) in [
        ("foo=10", 429, "never admitted"),
        ("tokens", 400, "expected"),
        ("tokens=-1", 400, "expected"),
        ("", 400, "expected"),
    ] {
        let answer = spend(cost).await;
        assert_eq!(answer.status(), status);
        assert!(json(answer).await["error"].to_string().contains(part));
    }
}

#[tokio::test]
async fn chat_streams_words_then_usage_then_done() {
    let server = Server::start(Config::default()).await;
    let mut ask = json!({"messages": [{"content": "hi"}], "max_tokens": 100});
    let whole = json(server.post(CHAT, &ask).await).await;
    ask["stream"] = json!(true);
    ask["stream_options"] = json!({"include_usage": true});
    let answer = server.post(CHAT, &ask).await;
    assert_eq!(header(&answer, "content-type"), "text/event-stream");
    let text = answer.text().await.expect("events");
    let mut events: Vec<_> = text.trim_end().split("\n\n").collect();
    assert_eq!(events.pop(), Some("data: [DONE]"));
    let data = |event: &&str| serde_json::from_str::<Value>(&event[6..]).expect("JSON");
    let chunks: Vec<Value> = events.iter().map(data).collect();
    let [first, words @ .., finish, usage] = &chunks[..] else { panic!("{chunks:?}") };
    assert_eq!(first["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(finish["choices"][0]["finish_reason"], "stop");
    assert_eq!(usage["usage"]["completion_tokens"], words.len());
    let word =
        |chunk: &'_ Value| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned);
    let streamed: String = words.iter().filter_map(word).collect();
    assert_eq!(whole["choices"][0]["message"]["content"], streamed);
}

#[tokio::test]
async fn the_report_is_free_and_tells_what_was_used_of_the_quota() {
    let server = Server::start(config(Family::Legacy, &["4/1h", "tokens=100/1h"])).await;
    assert_eq!(server.report().await["quota_used"], Value::Null);
    for _ in 0..5 {
        server.with("x-sandbox-cost", "tokens=10").await;
    }
    let report = server.report().await;
    assert_eq!(report["admitted"], 4);
    assert_eq!(report["refused"], 1);
    assert_eq!(report["capacity"], json!({"requests": 4, "tokens": 100}));
    assert_eq!(report["quota_used"], 1.0);
    let tokens = json!({"limit": 100, "window_s": 3600.0, "spent": 40});
    assert_eq!(report["dimensions"]["tokens"], tokens);
    let seconds = report["per_second"].as_array().expect("seconds").iter();
    let spent = seconds.filter_map(|second| second["spent"]["tokens"].as_u64());
    assert_eq!(spent.sum::<u64>(), 40);
    send(server.request(Method::DELETE, "/_sandbox")).await;
    assert_eq!(server.report().await["admitted"], 0);
    assert_eq!(server.get("/").await.status(), 200);
    assert_eq!(server.get("/_sandbox/other").await.status(), 404);
}

#[tokio::test]
async fn unreadable_requests_are_refused_in_the_providers_shape_and_not_counted() {
    let server = Server::start(config(Family::Legacy, &["1/1h"])).await;
    for path in [CHAT, "/v1/messages"] {
        for text in [json!("no object"), json!({"max_tokens": -1})] {
            let answer = server.post(path, &text).await;
            assert_eq!(answer.status(), 400);
            assert_eq!(json(answer).await["error"]["type"], "invalid_request_error");
        }
    }
    assert_eq!(server.report().await["admitted"], 0);
}

#[tokio::test]
async fn hostile_requests_get_an_error_and_the_server_lives() {
    let server = Server::start(config(Family::Legacy, &["9/1h"])).await;
    let many = "a: b\r\n".repeat(10_000);
    for (headers, status) in [
        (&b"content-length: 16777217"[..], "413"),
        (b"authorization: \0", "400"),
        (b"x-sandbox-cost: \xfe", "400"),
        (b"x-api-key: \xfe", "200"),
        (many.as_bytes(), "431"),
    ] {
        let start = &b"PUT / HTTP/1.1\r\nconnection: close\r\n"[..];
        let answer = server.raw(&[start, headers, b"\r\n\r\n"].concat()).await;
        assert_eq!(answer.get(9..12), Some(status), "{answer}");
    }
    let deep = "{\"input\": ".to_owned() + &"[".repeat(100_000);
    let answer = send(server.request(Method::POST, CHAT).body(deep)).await;
    assert_eq!(answer.status(), 400);
    assert_eq!(server.get("/").await.status(), 200);
}
