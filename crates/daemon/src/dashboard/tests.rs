//! Tests of the files as a browser gets them, and of what they must not contain.

use axum::body::Body;
use axum::http::Request;
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use platter_store::{Store, StorePlace};
use tokio::sync::watch;

use super::*;
use crate::api::files_tests::options_of;
use crate::api::router;

async fn ask(entrance: Entrance, path: &str, tag: Option<&HeaderValue>) -> Response {
    let folder = tempfile::tempdir().unwrap();
    let store = StorePlace::on_system(folder.path().join("store"));
    Store::init(&store).unwrap();
    let options = options_of(store);
    let origin = Arc::new(Origin::open(&options, watch::channel(false).1).unwrap());
    let mut request = Request::builder().uri(path);
    if let Some(tag) = tag {
        request = request.header(IF_NONE_MATCH, tag);
    }
    let service = TowerToHyperService::new(router(&origin, entrance));
    service.call(request.body(Body::empty()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn the_files_need_no_token_and_have_security_headers() {
    for path in FILES.map(|(path, _, _)| path).into_iter().chain([ACCESS]) {
        let response = ask(Entrance::Token, path, None).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let headers = response.headers();
        assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(headers[CACHE_CONTROL], "no-cache");
        let policy = headers[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
        let again = ask(Entrance::Token, path, Some(&headers[ETAG])).await;
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{path}");
        let other = HeaderValue::from_static("\"other\", W/\"another\"");
        assert_eq!(ask(Entrance::Token, path, Some(&other)).await.status(), StatusCode::OK);
    }
    assert_eq!(ask(Entrance::Token, "/dashboard/none.js", None).await.status(), StatusCode::NOT_FOUND);
    let data = ask(Entrance::Trusted, "/api/v1/images", None).await;
    assert_eq!(data.headers()[CACHE_CONTROL], "no-store");
    assert_eq!(data.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
}

#[test]
fn nothing_comes_from_elsewhere_and_no_text_becomes_markup() {
    let namespace = "http://www.w3.org/2000/svg";
    for (path, _, contents) in FILES {
        let contents = contents.replace(namespace, "");
        for bad in ["http:", "https:", "//cdn", "@import", "url(", "style=", "onclick", "javascript:"] {
            assert!(!contents.contains(bad), "{path} has {bad}");
        }
        for bad in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage"]
        {
            assert!(!contents.contains(bad), "{path} has {bad}");
        }
    }
}

/// Every file is referred to by another one.
#[test]
fn every_file_is_referred_to() {
    let all: String = FILES.map(|(_, _, contents)| contents).concat();
    for (path, _, _) in FILES.into_iter().skip(1) {
        let name = path.rsplit('/').next().unwrap();
        assert!(all.contains(&format!("/{name}\"")), "nothing refers to {path}");
    }
    assert!(all.contains(&format!("\"{ACCESS}\"")));
}
