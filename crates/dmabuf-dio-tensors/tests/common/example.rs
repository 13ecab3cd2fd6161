use dmabuf_dio_tensors::{Error, Model};

fn experts(folder: &str) -> Result<(), Error> {
    let model = Model::open(folder)?;
    let wanted = model.tensors().iter().filter(|tensor| tensor.name.contains(".experts.7."));
    // Dma-bufs, or memfds where there are none; with kind(Kind::DmaBuf) that is an error.
    let loaded = model.loader().only(wanted.map(|tensor| tensor.name.clone())).load()?;
    for view in &loaded.views {
        println!("{} {:?}: {} bytes at {} of {:?}", view.dtype, view.shape, view.len, view.offset, view.buffer);
    }
    Ok(())
}
