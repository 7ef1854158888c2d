//! Instance attributes, read where the interpreter keeps them.
//!
//! `PyObject_GetAttr` walks the classes of the object before it looks at the instance; for the six
//! attributes of each bound symbol that alone is more work than the rest of reading it. Python
//! 3.11 to 3.13 keep the attributes of an instance in an array beside the object, at the places
//! that the class's shared keys give them, until somebody asks for `__dict__`; then the array, or
//! the entries, belong to the dictionary.
//!
//! Everything here is fenced: it is compiled for the versions whose layout is written down below
//! and no other, [`Layout::find`] refuses a class that does not look as expected, every read
//! checks what it relies on, and [`direct_reads_work`] compares direct reads with
//! `PyObject_GetAttr` on real objects before any is used. Whoever gets no answer asks the interpreter.

use pyo3::ffi;

/// Where the attributes of the instances of one class are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout<const N: usize> {
    class: *mut ffi::PyTypeObject,
    keys: *mut Keys,
    slots: [u32; N],
}

impl<const N: usize> Default for Layout<N> {
    fn default() -> Self {
        Self { class: std::ptr::null_mut(), keys: std::ptr::null_mut(), slots: [0; N] }
    }
}

/// `PyDictKeysObject` of 3.11 to 3.13 in builds with the global lock; the indices and then the
/// entries follow.
#[repr(C)]
#[derive(Debug)]
struct Keys {
    refcnt: isize,
    log2_size: u8,
    log2_index_bytes: u8,
    kind: u8,
    version: u32,
    usable: isize,
    entry_count: isize,
}

/// `PyDictUnicodeEntry`
#[repr(C)]
struct Entry {
    key: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
}

/// `PyDictObject`
#[repr(C)]
struct Dict {
    head: ffi::PyObject,
    used: isize,
    version: u64,
    keys: *mut Keys,
    values: *mut u8,
}

/// Kinds of keys whose entries are [`Entry`]: all strings (1), shared by instances (2).
const KEYS_OF_STRINGS: u8 = 1;
const KEYS_SHARED: u8 = 2;

#[cfg(all(Py_3_11, not(Py_3_14), not(Py_GIL_DISABLED), target_pointer_width = "64"))]
mod place {
    //! Where an object keeps its values or its dictionary.

    use super::Dict;
    use pyo3::ffi;

    pub(super) const KNOWN: bool = true;
    const MANAGED_DICT: std::ffi::c_ulong = 1 << 4;
    /// Bytes in front of the pointers of a values array.
    #[cfg(Py_3_13)]
    const VALUES_HEAD: usize = 8;
    #[cfg(not(Py_3_13))]
    const VALUES_HEAD: usize = 0;

    pub(super) unsafe fn is_suitable(class: *mut ffi::PyTypeObject) -> bool {
        // From 3.13 on only some classes keep values beside the object.
        #[cfg(Py_3_13)]
        const NEEDED: std::ffi::c_ulong = MANAGED_DICT | 1 << 2;
        #[cfg(not(Py_3_13))]
        const NEEDED: std::ffi::c_ulong = MANAGED_DICT;
        (*class).tp_flags & NEEDED == NEEDED && (*class).tp_itemsize == 0
    }

    /// The array of values, or null; and the dictionary, or null.
    #[inline]
    pub(super) unsafe fn of(object: *mut ffi::PyObject) -> (*const *mut ffi::PyObject, *mut Dict) {
        let before = object.cast::<*mut u8>();
        #[cfg(Py_3_13)]
        {
            // `PyDictValues`: capacity, size, embedded, valid; then the pointers.
            let values = object.cast::<u8>().add((*(*object).ob_type).tp_basicsize as usize);
            if *values.add(3) != 0 {
                return (values.add(VALUES_HEAD).cast(), std::ptr::null_mut());
            }
            (std::ptr::null(), (*before.sub(3)).cast())
        }
        #[cfg(all(Py_3_12, not(Py_3_13)))]
        {
            let tagged = *before.sub(3);
            if tagged as usize & 1 == 1 {
                return (tagged.add(1).cast(), std::ptr::null_mut());
            }
            (std::ptr::null(), tagged.cast())
        }
        #[cfg(not(Py_3_12))]
        {
            let values = *before.sub(4);
            if !values.is_null() {
                return (values.cast(), std::ptr::null_mut());
            }
            (std::ptr::null(), (*before.sub(3)).cast())
        }
    }

    #[inline]
    pub(super) unsafe fn values_of_dict(dict: *mut Dict) -> *const *mut ffi::PyObject {
        let values = (*dict).values;
        if values.is_null() {
            return std::ptr::null();
        }
        values.add(VALUES_HEAD).cast()
    }
}

#[cfg(not(all(Py_3_11, not(Py_3_14), not(Py_GIL_DISABLED), target_pointer_width = "64")))]
mod place {
    //! Nothing is known of this version.

    use super::Dict;
    use pyo3::ffi;

    pub(super) const KNOWN: bool = false;

    pub(super) unsafe fn is_suitable(_: *mut ffi::PyTypeObject) -> bool {
        false
    }

    pub(super) unsafe fn of(_: *mut ffi::PyObject) -> (*const *mut ffi::PyObject, *mut Dict) {
        (std::ptr::null(), std::ptr::null_mut())
    }

    pub(super) unsafe fn values_of_dict(_: *mut Dict) -> *const *mut ffi::PyObject {
        std::ptr::null()
    }
}

impl Keys {
    #[inline]
    unsafe fn entries(this: *const Self) -> *const Entry {
        // The indices take `1 << log2_index_bytes` bytes behind the head.
        this.add(1).cast::<u8>().add(1 << (*this).log2_index_bytes).cast()
    }
}

/// Whether `getattr` gives what an instance keeps under these names: no class in the line has its
/// own `__getattribute__`, or a property or the like of such a name.
///
/// # Safety
/// As for [`Layout::find`].
unsafe fn gives_what_instances_keep(class: *mut ffi::PyTypeObject, names: &[*mut ffi::PyObject]) -> bool {
    let line = (*class).tp_mro;
    let own_way = ffi::PyUnicode_InternFromString(c"__getattribute__".as_ptr());
    if line.is_null() || own_way.is_null() {
        ffi::PyErr_Clear();
        return false;
    }
    let mut gives = true;
    for index in 0..ffi::PyTuple_GET_SIZE(line) {
        let base = ffi::PyTuple_GET_ITEM(line, index).cast::<ffi::PyTypeObject>();
        // The interpreter's own classes, such as `object`, know nothing of these names.
        if (*base).tp_flags & ffi::Py_TPFLAGS_HEAPTYPE == 0 {
            continue;
        }
        let dict = (*base).tp_dict;
        let stands_aside = |&name: &*mut ffi::PyObject| {
            let found = ffi::PyDict_GetItemWithError(dict, name);
            found.is_null() || (*ffi::Py_TYPE(found)).tp_descr_set.is_none()
        };
        gives &=
            !dict.is_null() && ffi::PyDict_GetItemWithError(dict, own_way).is_null() && names.iter().all(stands_aside);
    }
    ffi::PyErr_Clear();
    ffi::Py_DECREF(own_way);
    gives
}

impl<const N: usize> Layout<N> {
    /// Where instances of `class` keep the attributes of these (interned) names; none if that is
    /// not how this interpreter, or this class, works.
    ///
    /// # Safety
    /// The interpreter is attached, `class` is a class, `names` are interned strings.
    pub(crate) unsafe fn find(class: *mut ffi::PyTypeObject, names: [*mut ffi::PyObject; N]) -> Option<Self> {
        if !place::KNOWN || (*class).tp_flags & ffi::Py_TPFLAGS_HEAPTYPE == 0 || !place::is_suitable(class) {
            return None;
        }
        if !gives_what_instances_keep(class, &names) {
            return None;
        }
        let keys = (*class.cast::<ffi::PyHeapTypeObject>()).ht_cached_keys.cast::<Keys>();
        if keys.is_null() || (*keys).kind != KEYS_SHARED {
            return None;
        }
        let entries = Keys::entries(keys);
        let count = usize::try_from((*keys).entry_count).ok()?;
        let mut slots = [0; N];
        for (slot, name) in slots.iter_mut().zip(names) {
            let index = (0..count).find(|&index| (*entries.add(index)).key == name)?;
            *slot = index as u32;
        }
        Some(Self { class, keys, slots })
    }

    /// Whether the layout is still that of its class: shared keys can be replaced.
    ///
    /// # Safety
    /// The interpreter is attached, and the class is alive.
    pub(crate) unsafe fn is_current(&self) -> bool {
        !self.class.is_null() && (*self.class.cast::<ffi::PyHeapTypeObject>()).ht_cached_keys.cast() == self.keys
    }

    /// The attributes of an instance, borrowed; none if some are not where they are expected.
    ///
    /// # Safety
    /// The interpreter is attached, `object` is alive and an instance of exactly the class, and
    /// the layout is current.
    #[inline]
    pub(crate) unsafe fn read(
        &self,
        object: *mut ffi::PyObject,
        names: &[*mut ffi::PyObject; N],
    ) -> Option<[*mut ffi::PyObject; N]> {
        let (values, dict) = place::of(object);
        if values.is_null() {
            self.read_from_dict(dict, names)
        } else {
            self.read_from_values(values)
        }
    }

    #[inline]
    unsafe fn read_from_values(&self, values: *const *mut ffi::PyObject) -> Option<[*mut ffi::PyObject; N]> {
        let found = self.slots.map(|slot| *values.add(slot as usize));
        if found.iter().any(|found| found.is_null()) {
            return None;
        }
        Some(found)
    }

    /// As `read`, from the dictionary that the attributes belong to.
    ///
    /// # Safety
    /// As for `read`; the dictionary is that of an instance of the class, or null.
    #[inline(never)]
    unsafe fn read_from_dict(
        &self,
        dict: *mut Dict,
        names: &[*mut ffi::PyObject; N],
    ) -> Option<[*mut ffi::PyObject; N]> {
        if dict.is_null() {
            return None;
        }
        let keys = (*dict).keys;
        if keys == self.keys {
            let values = place::values_of_dict(dict);
            if !values.is_null() {
                return self.read_from_values(values);
            }
        }
        // A dictionary of its own. Attributes that `__init__` set are in their old places.
        if (*keys).kind != KEYS_OF_STRINGS {
            return None;
        }
        let mut found = [std::ptr::null_mut(); N];
        let entries = Keys::entries(keys);
        for ((found, slot), &name) in found.iter_mut().zip(self.slots).zip(names) {
            if i64::from(slot) >= (*keys).entry_count as i64 {
                return None;
            }
            let entry = entries.add(slot as usize);
            if (*entry).key != name || (*entry).value.is_null() {
                return None;
            }
            *found = (*entry).value;
        }
        Some(found)
    }

    /// Where the attributes of an instance are, to ask for that memory later.
    ///
    /// # Safety
    /// `object` is alive and an instance of exactly the class.
    #[inline]
    pub(crate) unsafe fn values_of(object: *mut ffi::PyObject) -> *const u8 {
        let (values, dict) = place::of(object);
        if values.is_null() {
            dict.cast_const().cast()
        } else {
            values.cast()
        }
    }

    /// Asks the processor for the lines that [`Layout::read`] will look at first.
    ///
    /// # Safety
    /// `object` is alive and an instance of exactly the class.
    #[inline]
    pub(crate) unsafe fn prefetch_values(object: *mut ffi::PyObject) {
        let (values, dict) = place::of(object);
        prefetch(values.cast());
        prefetch(dict.cast());
    }
}

/// Asks the processor for a line of memory; harmless for any address.
#[inline]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch does not access memory as far as the program can tell.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Whether no member of a set has this hash, as far as one look can tell: a search begins at the
/// place that the hash gives, and ends where a place was never taken.
///
/// # Safety
/// The interpreter is attached, and `set` is a set.
#[inline]
#[allow(clippy::cast_sign_loss, reason = "a mask has no sign")]
pub(crate) unsafe fn is_surely_not_in_set(set: *mut ffi::PyObject, hash: isize) -> bool {
    if !place::KNOWN {
        return false;
    }
    let set = set.cast::<ffi::PySetObject>();
    let first = (*set).table.add((hash & (*set).mask) as usize);
    (*first).key.is_null()
}

/// Asks for the memory that [`is_surely_not_in_set`] will look at, if the object is a set with anything in it.
///
/// # Safety
/// The interpreter is attached, and the object is alive.
#[inline]
#[allow(clippy::cast_sign_loss, reason = "a mask has no sign")]
pub(crate) unsafe fn prefetch_set_entry(object: *mut ffi::PyObject, hash: isize) {
    if place::KNOWN && ffi::Py_TYPE(object) == &raw mut ffi::PySet_Type && ffi::PySet_GET_SIZE(object) > 0 {
        let set = object.cast::<ffi::PySetObject>();
        prefetch((*set).table.add((hash & (*set).mask) as usize).cast());
    }
}

/// Compares direct reads with `getattr` on objects in every state that one can be in: fresh, with
/// its dictionary asked for, with more attributes than the class knows, with one missing.
pub(crate) fn direct_reads_work(py: pyo3::Python<'_>) -> bool {
    use pyo3::prelude::*;
    let check = || -> PyResult<bool> {
        let source = c"
class Probe:
    def __init__(self):
        self.first = object()
        self.second = object()
        self.third = object()
fresh, asked, grown = Probe(), Probe(), Probe()
asked.__dict__
for index in range(100):
    grown.__dict__[f'attribute_{index}'] = index
missing = Probe()
del missing.second
emptied = Probe()
emptied.__dict__ = {'third': 1, 'second': 2, 'first': 3}
replaced = Probe()
replaced.__dict__.clear()
probes = [fresh, asked, grown, missing, emptied, replaced]
";
        let scope = pyo3::types::PyDict::new(py);
        py.run(source, Some(&scope), None)?;
        let class = scope.get_item("Probe")?.expect("just defined");
        let names = ["first", "second", "third"].map(|name| pyo3::types::PyString::intern(py, name));
        let pointers = [names[0].as_ptr(), names[1].as_ptr(), names[2].as_ptr()];
        // SAFETY: the interpreter is attached, and these are a class and interned strings.
        let Some(layout) = (unsafe { Layout::find(class.as_ptr().cast(), pointers) }) else { return Ok(false) };
        for (index, probe) in scope.get_item("probes")?.expect("just defined").try_iter()?.enumerate() {
            let probe = probe?;
            // SAFETY: all probes are instances of the class, which did not change.
            let read = unsafe { layout.read(probe.as_ptr(), &pointers) };
            match read {
                Some(found) => {
                    for (found, name) in found.into_iter().zip(&names) {
                        if !probe.hasattr(name)? || probe.getattr(name)?.as_ptr() != found {
                            return Ok(false);
                        }
                    }
                }
                // The usual states must be readable; the odd ones may be left to CPython.
                None if index < 2 => return Ok(false),
                None => {}
            }
        }
        Ok(true)
    };
    place::KNOWN && check().unwrap_or(false)
}
