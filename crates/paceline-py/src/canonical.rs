//! Writing down what Python values say, so that equal ones read the same and others never do.

use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PyString, PyTuple,
};

/// What lies deeper is no argument of a call, or goes round in circles.
const DEEPEST: u32 = 64;

/// Writes a value down; gives `None` for one of which it is not known what it says.
///
/// Types count: 1, 1.0 and True are three values. The order of a dictionary does not, except that of the
/// `properties` of a JSON schema: models answer in that order.
pub(crate) fn write(value: &Bound<'_, PyAny>, said: &mut Vec<u8>) -> Option<()> {
    at_depth(value, said, 0, false)
}

fn at_depth(
    value: &Bound<'_, PyAny>,
    said: &mut Vec<u8>,
    depth: u32,
    is_ordered: bool,
) -> Option<()> {
    if depth > DEEPEST {
        return None;
    }
    // Exactly these: what is derived from them may say more.
    if value.is_exact_instance_of::<PyString>() {
        let text = value.cast::<PyString>().ok()?;
        put(b's', text.to_str().ok()?.as_bytes(), said);
    } else if value.is_exact_instance_of::<PyDict>() {
        let dict = value.cast::<PyDict>().ok()?;
        write_dict(dict.iter(), said, depth, is_ordered)?;
    } else if value.is_exact_instance_of::<PyList>() {
        let list = value.cast::<PyList>().ok()?;
        begin(b'l', list.len(), said);
        list.iter().try_for_each(|item| at_depth(&item, said, depth + 1, false))?;
    } else if value.is_none() {
        said.push(b'n');
    } else if value.is_exact_instance_of::<PyBool>() {
        said.push(if value.is_truthy().ok()? { b'T' } else { b'F' });
    } else if value.is_exact_instance_of::<PyInt>() {
        match value.extract::<i64>() {
            Ok(number) => {
                said.push(b'i');
                said.extend_from_slice(&number.to_le_bytes());
            }
            Err(_) => put(b'I', value.str().ok()?.to_str().ok()?.as_bytes(), said),
        }
    } else if value.is_exact_instance_of::<PyFloat>() {
        said.push(b'f');
        said.extend_from_slice(&value.extract::<f64>().ok()?.to_bits().to_le_bytes());
    } else if value.is_exact_instance_of::<PyBytes>() {
        put(b'b', value.cast::<PyBytes>().ok()?.as_bytes(), said);
    } else if value.is_exact_instance_of::<PyTuple>() {
        let tuple = value.cast::<PyTuple>().ok()?;
        begin(b't', tuple.len(), said);
        tuple.iter().try_for_each(|item| at_depth(&item, said, depth + 1, false))?;
    } else if value.is_exact_instance_of::<PyFrozenSet>() {
        let set = value.cast::<PyFrozenSet>().ok()?;
        let mut items = Vec::with_capacity(set.len());
        for item in set.iter() {
            let mut one = Vec::new();
            at_depth(&item, &mut one, depth + 1, false)?;
            items.push(one);
        }
        items.sort_unstable();
        begin(b'z', items.len(), said);
        items.iter().for_each(|item| said.extend_from_slice(item));
    } else {
        write_known(value, said)?;
    }
    Some(())
}

/// The entries of a dictionary, whose keys are text.
fn write_dict<'py>(
    entries: impl ExactSizeIterator<Item = (Bound<'py, PyAny>, Bound<'py, PyAny>)>,
    said: &mut Vec<u8>,
    depth: u32,
    is_ordered: bool,
) -> Option<()> {
    let mut sorted = Vec::with_capacity(entries.len());
    for (name, value) in entries {
        if !name.is_exact_instance_of::<PyString>() {
            return None;
        }
        let name = name.cast_into::<PyString>().ok()?;
        name.to_str().ok()?;
        sorted.push((name, value));
    }
    if !is_ordered {
        sorted.sort_unstable_by(|one, other| one.0.to_str().ok().cmp(&other.0.to_str().ok()));
    }
    begin(if is_ordered { b'D' } else { b'd' }, sorted.len(), said);
    for (name, value) in &sorted {
        let name = name.to_str().ok()?;
        put(b's', name.as_bytes(), said);
        at_depth(value, said, depth + 1, name == "properties")?;
    }
    Some(())
}

/// The attributes of a client, but for those of that name.
pub(crate) fn write_attributes(
    attributes: &Bound<'_, PyDict>,
    but: &Bound<'_, PyFrozenSet>,
    said: &mut Vec<u8>,
) -> Option<()> {
    let counted = attributes.iter().filter(|(name, _)| !but.contains(name).unwrap_or(false));
    write_dict(counted.collect::<Vec<_>>().into_iter(), said, 0, false)
}

/// Packages that have words of their own for what was not given.
const SDKS: [&str; 4] = ["anthropic", "groq", "openai", "together"];

fn package(module: &str) -> &str {
    module.split('.').next().unwrap_or_default()
}

/// What SDKs have beside Python's own: URLs, and what stands for an argument that was not given.
fn write_known(value: &Bound<'_, PyAny>, said: &mut Vec<u8>) -> Option<()> {
    let kind = value.get_type();
    let (name, module) = (kind.name().ok()?, kind.module().ok()?);
    match (name.to_str().ok()?, module.to_str().ok()?) {
        ("URL", module) if matches!(package(module), "httpx" | "httpx2") => {
            put(b'u', value.str().ok()?.to_str().ok()?.as_bytes(), said);
        }
        (name @ ("NotGiven" | "Omit"), module) if SDKS.contains(&package(module)) => {
            put(b'o', name.as_bytes(), said);
        }
        _ => return None,
    }
    Some(())
}

fn begin(kind: u8, length: usize, said: &mut Vec<u8>) {
    said.push(kind);
    said.extend_from_slice(&(length as u64).to_le_bytes());
}

fn put(kind: u8, bytes: &[u8], said: &mut Vec<u8>) {
    begin(kind, bytes.len(), said);
    said.extend_from_slice(bytes);
}
