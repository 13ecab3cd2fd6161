// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders of web servers.

use std::path::Path;

use dmabuf_dio::content::Folder;
use dmabuf_dio::{Errno, Error, Kind, Loader};
use dmabuf_dio_remote::Prefix;

use crate::server::{Fault, Server};
use crate::{MIB, content, settings};

#[test]
fn files_of_a_folder_are_opened_and_not_listed() {
    let server = Server::new(content(MIB + 5), |_| Fault::None);
    let url = server.url("/models/one%20model/part%201?token=secret");
    let (folder, name) = Prefix::around(&url, &settings()).expect("a folder");
    assert_eq!(name, "part 1");
    for (name, path) in [(&name[..], "part%201"), ("below/2?", "below/2%3F")] {
        let object = folder.open(Path::new(name)).expect("opened");
        assert_eq!(object.name(), folder.name().join(name));
        let loaded = Loader::from_content(object).kind(Kind::Private).load().expect("loaded");
        assert!(loaded.bytes() == Some(server.bytes()), "{name}");
        let asked = server.requests().last().map(|request| request.path.clone());
        assert_eq!(asked, Some(format!("/models/one%20model/{path}?token=secret")));
    }
    let error = folder.list().expect_err("no list");
    assert_eq!(error.errno(), Some(Errno::OPNOTSUPP));
    assert!(!format!("{error} {error:?} {folder:?}").contains("secret"), "{error}");
    let error =
        Prefix::around(&server.url("/models/"), &settings()).map(drop).expect_err("no name");
    assert!(matches!(error, Error::Content { errno: Errno::INVAL, .. }), "{error}");
}
