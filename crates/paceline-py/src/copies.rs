//! Making copies of what an SDK has made of an answer: callers may change what they are given.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PySet, PyString, PyType};

/// What lies deeper is no answer.
const DEEPEST: u32 = 64;

/// A value of which copies are made, as `copy.deepcopy` makes them, but ten times faster.
pub(crate) enum Copies {
    /// What nobody can change.
    Shared(Py<PyAny>),
    /// A list, and what is to be copied in it.
    List(Py<PyList>, Vec<(usize, Self)>),
    /// A dictionary, and what is to be copied in it.
    Dict(Py<PyDict>, Vec<(Py<PyAny>, Self)>),
    /// A pydantic model.
    Model(Box<Model>),
}

/// What a pydantic model is made of, which is what its `__deepcopy__` copies.
pub(crate) struct Model {
    class: Py<PyType>,
    fields: Copies,
    fields_set: Py<PyAny>,
    extra: Copies,
    private: Copies,
}

/// `object.__new__` and `object.__setattr__`.
static NEW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static SET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static BASE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

impl Copies {
    /// The copies of a model, and about how many bytes one takes; `None` where it is not known how to copy
    /// something in it.
    pub(crate) fn of(value: &Bound<'_, PyAny>) -> Option<(Self, u64)> {
        let base = BASE.import(value.py(), "pydantic", "BaseModel").ok()?;
        if !value.is_instance(base).ok()? {
            return None;
        }
        let mut size = 0;
        Some((Self::read(value, base, &mut size, 0)?, size))
    }

    fn read(
        value: &Bound<'_, PyAny>,
        base: &Bound<'_, PyType>,
        size: &mut u64,
        depth: u32,
    ) -> Option<Self> {
        *size += 64;
        if depth > DEEPEST {
            return None;
        }
        if value.is_exact_instance_of::<PyString>() {
            *size += value.len().ok()? as u64;
            return Some(Self::Shared(value.clone().unbind()));
        }
        if value.is_none()
            || value.is_exact_instance_of::<PyBool>()
            || value.is_exact_instance_of::<PyInt>()
            || value.is_exact_instance_of::<PyFloat>()
            || value.is_exact_instance_of::<PyBytes>()
        {
            return Some(Self::Shared(value.clone().unbind()));
        }
        if value.is_exact_instance_of::<PyList>() {
            let list = value.cast::<PyList>().ok()?;
            let list = list.get_slice(0, list.len());
            let mut copied = Vec::new();
            for (at, item) in list.iter().enumerate() {
                match Self::read(&item, base, size, depth + 1)? {
                    Self::Shared(_) => {}
                    copies => copied.push((at, copies)),
                }
            }
            return Some(Self::List(list.unbind(), copied));
        }
        if value.is_exact_instance_of::<PyDict>() {
            let dict = value.cast::<PyDict>().ok()?.copy().ok()?;
            let mut copied = Vec::new();
            for (name, item) in dict.iter() {
                let Self::Shared(name) = Self::read(&name, base, size, depth + 1)? else {
                    return None;
                };
                match Self::read(&item, base, size, depth + 1)? {
                    Self::Shared(_) => {}
                    copies => copied.push((name, copies)),
                }
            }
            return Some(Self::Dict(dict.unbind(), copied));
        }
        Self::read_model(value, base, size, depth)
    }

    fn read_model(
        value: &Bound<'_, PyAny>,
        base: &Bound<'_, PyType>,
        size: &mut u64,
        depth: u32,
    ) -> Option<Self> {
        let py = value.py();
        let class = value.get_type();
        let object = py.get_type::<PyAny>();
        let is_plain = |name: &Bound<'_, PyString>, of: &Bound<'_, PyType>| {
            Some(class.getattr(name).ok()?.is(&of.getattr(name).ok()?))
        };
        if !value.is_instance(base).ok()?
            || !is_plain(intern!(py, "__deepcopy__"), base)?
            || !is_plain(intern!(py, "__new__"), &object)?
        {
            return None;
        }
        let mut part = |name: &Bound<'_, PyString>| {
            Self::read(&value.getattr(name).ok()?, base, size, depth + 1)
        };
        let fields = part(intern!(py, "__dict__"))?;
        let extra = part(intern!(py, "__pydantic_extra__"))?;
        let private = part(intern!(py, "__pydantic_private__"))?;
        let set = value.getattr(intern!(py, "__pydantic_fields_set__")).ok()?;
        if !set.is_exact_instance_of::<PySet>() {
            return None;
        }
        let fields_set = set.call_method0(intern!(py, "copy")).ok()?.unbind();
        NEW.get_or_try_init(py, || object.getattr("__new__").map(Bound::unbind)).ok()?;
        SET.get_or_try_init(py, || object.getattr("__setattr__").map(Bound::unbind)).ok()?;
        let class = class.unbind();
        Some(Self::Model(Box::new(Model { class, fields, fields_set, extra, private })))
    }

    /// Makes one.
    pub(crate) fn make<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Shared(value) => Ok(value.bind(py).clone()),
            Self::List(list, copied) => {
                let list = list.bind(py);
                let made = list.get_slice(0, list.len());
                for (at, copies) in copied {
                    made.set_item(*at, copies.make(py)?)?;
                }
                Ok(made.into_any())
            }
            Self::Dict(dict, copied) => {
                let made = dict.bind(py).copy()?;
                for (name, copies) in copied {
                    made.set_item(name, copies.make(py)?)?;
                }
                Ok(made.into_any())
            }
            Self::Model(model) => model.make(py),
        }
    }
}

impl Model {
    fn make<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let known = NEW.get(py).zip(SET.get(py));
        let (new, set) =
            known.ok_or_else(|| pyo3::exceptions::PyRuntimeError::new_err("no copy"))?;
        let made = new.bind(py).call1((self.class.bind(py),))?;
        let set = |name: &Bound<'py, PyString>, value: Bound<'py, PyAny>| {
            set.bind(py).call1((&made, name, value)).map(drop)
        };
        set(intern!(py, "__dict__"), self.fields.make(py)?)?;
        let fields_set = self.fields_set.bind(py).call_method0(intern!(py, "copy"))?;
        set(intern!(py, "__pydantic_fields_set__"), fields_set)?;
        set(intern!(py, "__pydantic_extra__"), self.extra.make(py)?)?;
        set(intern!(py, "__pydantic_private__"), self.private.make(py)?)?;
        Ok(made)
    }
}
