//! Extracts the parameters of a path, or refuses the request.

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use platter_image::Error;
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// The decoded parameters of a path.
pub(super) struct Named<T>(pub(super) T);

impl<T, S> FromRequestParts<S> for Named<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let found = Path::<T>::from_request_parts(parts, state).await;
        let refused =
            |error: PathRejection| Problem::bad_request(&Error::refused(format!("the path: {error}")));
        found.map(|Path(names)| Self(names)).map_err(refused)
    }
}
