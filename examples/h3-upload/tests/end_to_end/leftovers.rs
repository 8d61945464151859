//! The next server removes the unfinished files of a killed one.

use crate::programs::Server;
use crate::raw::{DATA, connect, frame, put};

fn parts(server: &Server) -> Vec<String> {
    server.stored().into_iter().filter(|name| name.ends_with(".part")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_servers_unfinished_files_are_removed_and_a_running_ones_are_not() {
    let mut killed = Server::start(&[]);
    std::fs::write(killed.dir().join(".h3-upload-notes"), "somebody's own").unwrap();
    let client = connect(killed.port, &killed.ca()).await.unwrap();
    let begun = client.send(&[put("/x", None), frame(DATA, b"abc")].concat()).await;
    killed.wait_for("receiving");
    assert_eq!(parts(&killed).len(), 1);
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    assert_eq!(parts(&killed).len(), 1);
    drop(begun);

    let mut running = Server::beside(&killed);
    assert_eq!(running.stored(), [".h3-upload-notes"]);
    let client = connect(running.port, &running.ca()).await.unwrap();
    let (mut send, mut receive) =
        client.send(&[put("/y", None), frame(DATA, b"abc")].concat()).await;
    running.wait_for("receiving");
    let second = Server::beside(&running);
    assert_eq!(parts(&second).len(), 1);
    send.finish().unwrap();
    assert!(crate::raw::body(&mut receive).await.contains("sha256"));
    assert_eq!(second.stored(), [".h3-upload-notes", "y"]);
}
