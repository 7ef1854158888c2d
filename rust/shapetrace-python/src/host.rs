//! thunder's types and functions, as the Python side hands them over once.

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::copies::CopiedFields;

/// What the binding needs of thunder. Made from the object that `shapetrace_rs._thunder.host()`
/// returns, attribute by attribute.
pub(crate) struct Host {
    /// `thunder.core.symbol.BoundSymbol`
    pub(crate) bound_symbol: Py<PyType>,
    /// `thunder.core.proxies.Proxy` and what else counts as a leaf with a name
    pub(crate) proxy: Py<PyAny>,
    /// The proxies with a `_shape`
    pub(crate) tensor_proxy: Py<PyAny>,
    /// `thunder.core.baseutils.NumberProxyInterface`
    pub(crate) number_proxy: Py<PyAny>,
    /// `thunder.core.proxies.CollectionProxy`
    pub(crate) collection_proxy: Py<PyAny>,
    /// `thunder.core.proxies.Proxy.name`, to see whether a class replaces it
    pub(crate) proxy_name: Py<PyAny>,
    /// `thunder.core.proxies.Variable`
    pub(crate) variable: Py<PyAny>,
    /// `OpTags.DONT_DCE`
    pub(crate) effect_tag: Py<PyAny>,
    /// Its hash, which is that of its name and never another
    pub(crate) effect_tag_hash: isize,
    /// `(symbol) -> (name, flags, scalar name or None, may be kept)`
    pub(crate) symbol_facts: Py<PyAny>,
    /// `(object) -> bool`: whether thunder's flattening takes the object for a leaf
    pub(crate) is_leaf: Py<PyAny>,
    /// `(container) -> direct children`, for what is not walked natively
    pub(crate) flatten: Py<PyAny>,
    /// `(container, direct children) -> container of the same kind`
    pub(crate) unflatten: Py<PyAny>,
    /// `(bound symbol, changed fields) -> bound symbol`
    pub(crate) rebuild: Py<PyAny>,
    /// What `rebuild` sets for a `bound_symbol` whose symbol stays, if that is known
    pub(crate) fields: Option<CopiedFields>,
    /// `(tensor proxy, shape) -> tensor proxy of the same name`
    pub(crate) reshape: Py<PyAny>,
    /// `(scalar name) -> symbol`
    pub(crate) scalar_symbol: Py<PyAny>,
    /// `shapetrace_rs.errors.InvalidTraceError`
    pub(crate) invalid_trace_error: Py<PyAny>,
    /// `shapetrace_rs.errors.MissingReturnError`
    pub(crate) missing_return_error: Py<PyAny>,
    /// `shapetrace_rs.errors.InternalError`
    pub(crate) internal_error: Py<PyAny>,
}

impl Host {
    pub(crate) fn from_python(host: &Bound<'_, PyAny>) -> PyResult<Self> {
        let get = |name: &str| host.getattr(name).map(Bound::unbind);
        Ok(Self {
            bound_symbol: host.getattr("bound_symbol")?.cast_into::<PyType>()?.unbind(),
            proxy: get("proxy")?,
            tensor_proxy: get("tensor_proxy")?,
            number_proxy: get("number_proxy")?,
            collection_proxy: get("collection_proxy")?,
            proxy_name: get("proxy_name")?,
            variable: get("variable")?,
            effect_tag: get("effect_tag")?,
            effect_tag_hash: host.getattr("effect_tag")?.hash()?,
            symbol_facts: get("symbol_facts")?,
            is_leaf: get("is_leaf")?,
            flatten: get("flatten")?,
            unflatten: get("unflatten")?,
            rebuild: get("rebuild")?,
            fields: CopiedFields::from_python(&host.getattr("fields")?)?,
            reshape: get("reshape")?,
            scalar_symbol: get("scalar_symbol")?,
            invalid_trace_error: get("invalid_trace_error")?,
            missing_return_error: get("missing_return_error")?,
            internal_error: get("internal_error")?,
        })
    }

    /// An `InvalidTraceError` with the op, the value and the fix as attributes.
    pub(crate) fn invalid_trace(
        &self,
        py: Python<'_>,
        message: &str,
        op: Option<String>,
        value: Option<String>,
        hint: &str,
    ) -> PyErr {
        match self.invalid_trace_error.call1(py, (message, op, value, hint)) {
            Ok(error) => PyErr::from_value(error.into_bound(py)),
            Err(error) => error,
        }
    }
}
