//! Reading one response, and what a user adds to how responses are read.

use crate::convert::{for_each, invalid, wait};
use crate::permit::text;
use paceline::headers::value::Unit;
use paceline::headers::{Detector, HeadersMap, Provider, Quota, Response};
use paceline::{Counting, Dimension, Window};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// One limit of a response: dimension, name, limit, remaining, seconds until its reset, seconds of its
/// window, and whether it is a bucket.
type Told = (String, Option<String>, Option<u64>, Option<u64>, Option<f64>, Option<f64>, bool);

/// What a response asserts: its limits, the seconds to stay away, whether it is a rejection, whether the
/// quota does not come back by waiting, and the server's own bucket.
type Heard = (Vec<Told>, Option<f64>, bool, bool, Option<String>);

/// Read one response, by the same code as a limiter.
#[pyfunction]
#[pyo3(signature = (status, headers, url, now, body, headers_map, use_provider_profiles))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn detect(
    status: u16,
    headers: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
    url: Option<&str>,
    now: Option<f64>,
    body: Option<&[u8]>,
    headers_map: Option<&Bound<'_, PyAny>>,
    use_provider_profiles: bool,
) -> PyResult<Heard> {
    let bad = |_| PyValueError::new_err("now must be seconds since 1970");
    let now = match now {
        Some(now) => Duration::try_from_secs_f64(now).map_err(bad)?,
        None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
    };
    let map = self::headers_map(headers_map)?;
    let detector = Detector::default().map(map).host_profiles(use_provider_profiles);
    let mut fields = Vec::with_capacity(headers.len());
    for (name, value) in &headers {
        fields.extend(text(name.as_borrowed())?.zip(text(value.as_borrowed())?));
    }
    let response = Response { status, url, now, headers: fields, body };
    let reading = paceline::headers::detect(&detector, response);
    let told = |signal: paceline::Signal| {
        (
            signal.dimension.to_string(),
            signal.name.map(Into::into),
            signal.limit,
            signal.remaining,
            signal.reset.map(|span| span.as_secs_f64()),
            signal.window.map(|window| window.duration().as_secs_f64()),
            signal.counting == Counting::Bucket,
        )
    };
    let limits = reading.signals.into_iter().map(told).collect();
    let bucket = reading.bucket.map(Into::into);
    Ok((limits, reading.retry_after.map(wait), reading.rejected, reading.spent, bucket))
}

/// The user's own headers.
pub(crate) fn headers_map(given: Option<&Bound<'_, PyAny>>) -> PyResult<HeadersMap> {
    let mut map = HeadersMap::default();
    let Some(given) = given else { return Ok(map) };
    for_each(given, |key, name| {
        let (key, name): (String, String) = (key.extract()?, name.extract()?);
        let field = match key.as_str() {
            "limit" => &mut map.limit,
            "remaining" => &mut map.remaining,
            "reset" => &mut map.reset,
            "retry_after" => &mut map.retry_after,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "unknown key {key:?} in headers_map; known: limit, remaining, reset, retry_after"
                )));
            }
        };
        *field = Some(name.parse().map_err(invalid)?);
        Ok(())
    })?;
    Ok(map)
}

/// An API of the user's.
pub(crate) fn provider(
    hosts: &Bound<'_, PyAny>,
    dimensions: Option<&Bound<'_, PyDict>>,
) -> PyResult<Provider> {
    let hosts: Vec<String> = match hosts.cast::<PyString>() {
        Ok(one) => vec![one.extract()?],
        Err(_) => hosts.extract()?,
    };
    let mut quotas = Vec::new();
    for (name, given) in dimensions.into_iter().flat_map(|given| given.iter()) {
        let dimension = Dimension::new(&name.extract::<String>()?).map_err(invalid)?;
        quotas.push(quota(dimension, &given)?);
    }
    if hosts.is_empty() || quotas.is_empty() {
        return Err(PyValueError::new_err(
            "a provider needs hosts and at least one dimension, such as \
             requests={\"limit\": \"X-Calls-Allowed\", \"remaining\": \"X-Calls-Left\"}",
        ));
    }
    Ok(Provider { hosts: hosts.into_iter().map(Into::into).collect(), quotas })
}

/// One limit of such an API: the names of its headers, and what these do not say.
fn quota(dimension: Dimension, given: &Bound<'_, PyAny>) -> PyResult<Quota> {
    let mut quota = Quota { dimension, ..Quota::default() };
    let names = PyDict::new(given.py());
    for_each(given, |key, value| {
        let (key, text): (String, String) = (key.extract()?, value.extract()?);
        match (key.as_str(), text.as_str()) {
            ("window", _) => quota.window = Some(Window::parse(&text).map_err(invalid)?),
            ("unit", "ms") => quota.unit = Unit::Millis,
            ("unit", "s") => quota.unit = Unit::Told,
            ("unit", _) => return Err(PyValueError::new_err("unit must be \"s\" or \"ms\"")),
            ("counts", "bucket") => quota.counting = Counting::Bucket,
            ("counts", "window") => quota.counting = Counting::Fixed,
            ("counts", _) => {
                return Err(PyValueError::new_err("counts must be \"window\" or \"bucket\""));
            }
            _ => names.set_item(key, text)?,
        }
        Ok(())
    })?;
    quota.headers = headers_map(Some(&names.into_any()))?;
    Ok(quota)
}
