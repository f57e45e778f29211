-- Writes down what darktable knows of the picture that darktable-cli exports, into the file `facts` beside the
-- picture's folder: a line for each fact, its name, a tab, its value. Then it exports a second link to the same
-- file, in the folder `probe`, with the sidecar that lies there.
local darktable = require "darktable"

local names = {
  "width", "height", "exif_maker", "exif_model", "exif_lens", "exif_exposure", "exif_aperture", "exif_iso",
  "exif_focal_length", "exif_datetime_taken",
}

local asked = false
darktable.register_event("chemigram", "intermediate-export-image", function(_, image)
  -- The export below raises the event again.
  if asked then return end
  asked = true
  local folder = image.path .. "/../"
  local file = assert(io.open(folder .. "facts", "w"))
  for _, name in ipairs(names) do
    file:write(name, "\t", (tostring(image[name]):gsub("%c", " ")), "\n")
  end
  file:close()
  local probe = darktable.database.import(folder .. "probe/" .. image.filename)
  local format = darktable.new_format("png")
  format.bpp = 8
  format.max_width = 128
  format.max_height = 128
  -- What it returns means success in one version and failure in another: the file tells.
  pcall(format.write_image, format, probe, folder .. "probe.png")
end)
