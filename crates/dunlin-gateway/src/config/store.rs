//! The name of a store in a configuration.

use dunlin_store::StoreUrl;

use super::{Field, Section};

/// Reads the name of a store. A file name is relative to the directory of the configuration. `forms` names
/// the allowed forms.
pub(super) fn store<'a>(section: &mut Section<'a>, key: &'a str, forms: &str) -> Option<Field<StoreUrl>> {
    let Field { value, place } = section.text(key)?;
    match StoreUrl::parse(&value) {
        Ok(store) => {
            let value = store.map_path(|path| section.resolve(&path.to_string_lossy()));
            Some(Field { value, place })
        }
        // The text may contain a password, so it is not repeated.
        Err(fault) => {
            section.fault(place.fault(fault.to_string(), fault.advice().unwrap_or(forms)));
            None
        }
    }
}
