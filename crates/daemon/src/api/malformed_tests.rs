//! Malformed recipes, made by hand: each is refused as corrupt, and nothing is published.

use axum::http::StatusCode;
use platter_image::page::{Child, Entry, State, encode_branch, encode_leaf};
use platter_image::recipe::{CutPolicy, Root};
use platter_image::{BlockId, Domain, Extent, Kind, Score};
use platter_records::VersionRecord;
use serde_json::json;

use super::tests::{Room, frame};
use platter_api::Role;

const POLICY: CutPolicy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
const DISK: u64 = 1 << 20;
const BLOCK: u64 = 32 << 10;
const LEAF_SPAN_LOG2: u8 = 24;

/// A disk with arbitrary pages below an arbitrary root.
struct HandMade {
    what: &'static str,
    root: Vec<u8>,
    pages: Vec<Vec<u8>>,
}

fn id_of(page: &[u8]) -> BlockId {
    BlockId::of(Kind::Page, page)
}

fn contents() -> Vec<u8> {
    vec![7; BLOCK as usize]
}

fn root(disk_length: u64, top: Option<(u8, Child)>) -> Root {
    Root { disk_length, sector_size: 512, cut_policy: POLICY, domain: Domain::SHARED, top }
}

fn whole_leaf() -> Extent {
    Extent::new(0, 1 << LEAF_SPAN_LOG2)
}

/// A disk with one leaf, valid or not.
fn of_leaf(what: &'static str, leaf: Vec<u8>) -> HandMade {
    let top = Child { start: 0, span_log2: LEAF_SPAN_LOG2, id: id_of(&leaf) };
    HandMade { what, root: root(DISK, Some((0, top))).encode(), pages: vec![leaf] }
}

fn of_entry(what: &'static str, offset: u64, length: u64, state: State) -> HandMade {
    of_leaf(what, encode_leaf(whole_leaf(), &[Entry { extent: Extent::new(offset, length), state }]))
}

fn good() -> HandMade {
    let block = BlockId::of(Kind::Data, &contents());
    of_entry("good", 0, BLOCK, State::Data { block, offset: 0 })
}

fn hostile() -> Vec<HandMade> {
    let block = BlockId::of(Kind::Data, &contents());
    let data = |offset| State::Data { block, offset };
    let leaf = encode_leaf(whole_leaf(), &[Entry { extent: Extent::new(0, 512), state: data(0) }]);
    let top = Child { start: 0, span_log2: LEAF_SPAN_LOG2, id: id_of(&leaf) };
    let twice = [0, 512].map(|at| Entry { extent: Extent::new(at, 512), state: data(at as u32) });
    let past = Child { start: 1 << LEAF_SPAN_LOG2, ..top };
    let branch = encode_branch(1, Extent::new(0, 1 << 32), &[top, past]);
    let above = Child { start: 0, span_log2: 32, id: id_of(&branch) };
    let of_root =
        |what, root: Root| HandMade { what, root: root.encode(), pages: vec![leaf.clone(), branch.clone()] };
    let mut long = root(DISK, None).encode();
    long.push(0);
    let page = State::Data { block: id_of(&leaf), offset: 0 };
    let mut as_block = of_entry("a page as a block", 0, 512, page);
    as_block.pages.push(leaf.clone());
    vec![
        of_entry("out of its block", 0, 64 * 512, data(60 * 512)),
        of_entry("behind its block", BLOCK, 512, data(BLOCK as u32)),
        of_entry("past the end", DISK - 512, 1024, data(0)),
        of_entry("all past the end", DISK, 512, data(0)),
        of_entry("zeros past the end", 0, DISK + 512, State::Zero),
        of_leaf("two entries that are one", encode_leaf(whole_leaf(), &twice)),
        of_leaf("for another range", encode_leaf(Extent::new(1 << LEAF_SPAN_LOG2, 1 << LEAF_SPAN_LOG2), &[])),
        of_leaf("no page", vec![1; 700]),
        as_block,
        of_root("a page past the end", root(DISK, Some((1, above)))),
        of_root("a leaf as a branch", root(DISK, Some((1, top)))),
        of_root("the top past the end", root(DISK, Some((0, past)))),
        of_root("longer than files can be", root(!511, Some((0, top)))),
        of_root("another domain", Root { domain: Domain([1; 16]), ..root(DISK, Some((0, top))) }),
        HandMade { what: "a root with something behind it", root: long, pages: vec![] },
        HandMade { what: "a leaf as a root", root: leaf.clone(), pages: vec![] },
    ]
}

async fn post(room: &Room, token: &str, made: &HandMade, image: &str) -> (StatusCode, serde_json::Value) {
    let upload = room.begin(token).await;
    let mut pages = made.pages.clone();
    pages.push(made.root.clone());
    pages.sort();
    pages.dedup();
    let pages = frame(Kind::Page, pages.iter().map(|page| (id_of(page), &page[..])));
    let block = contents();
    let data = frame(Kind::Data, [(BlockId::of(Kind::Data, &block), &block[..])].into_iter());
    assert_eq!(room.send(token, &upload, &[data, pages]).await.0, StatusCode::OK, "{}", made.what);
    let score = Score(id_of(&made.root));
    let length = if made.what == "longer than files can be" { !511 } else { DISK };
    let draft = VersionRecord {
        disk_length: length,
        cut_policy: POLICY.0,
        ..VersionRecord::draft(image.parse().unwrap(), score, 1)
    };
    let answer = room.publish(token, &upload, &draft, None).await;
    room.ask(token, "DELETE", &upload, "").await;
    answer
}

#[tokio::test]
async fn a_malformed_recipe_is_a_bad_request_and_nothing_is_published() {
    let room = Room::new();
    for pattern in ["*", "lab/*"] {
        let token = room.token(Role::Write, pattern);
        for image in ["lab/new", "lab/a"] {
            for made in hostile() {
                let (status, problem) = post(&room, &token, &made, image).await;
                let said = (status, &problem["kind"]);
                assert_eq!(said, (StatusCode::BAD_REQUEST, &json!("corrupt")), "{}: {problem}", made.what);
            }
        }
        // A block as a recipe.
        let upload = room.begin(&token).await;
        let block = contents();
        let id = BlockId::of(Kind::Data, &block);
        room.send(&token, &upload, &[frame(Kind::Data, [(id, &block[..])].into_iter())]).await;
        let draft = VersionRecord::draft("lab/new".parse().unwrap(), Score(id), 1);
        let (status, problem) = room.publish(&token, &upload, &draft, None).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{problem}");
        room.ask(&token, "DELETE", &upload, "").await;
    }
    let token = room.token(Role::Write, "*");
    let (_, versions) = room.json(&token, "GET", "/api/v1/versions", &json!(null)).await;
    assert_eq!(versions.as_array().unwrap().len(), 2, "{versions}");
    let (status, answer) = post(&room, &token, &good(), "lab/new").await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}
