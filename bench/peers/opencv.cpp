// cv::filter2D on a kernel's tensors, without a copy. loops.ts inserts sizes. -1 in the window: no tap.
#include <opencv2/imgproc.hpp>

static const int WINDOW[] = {/* @window */};

extern "C" void peer_run(void* const* tensors, int part, int) {
  if (part != 0) return;
  cv::setNumThreads(1);
  @T weights[@KH * @KW];
  for (int i = 0; i < @KH * @KW; i++) weights[i] = WINDOW[i] < 0 ? 0 : ((const @T*)tensors[2])[WINDOW[i]];
  const cv::Mat window(@KH, @KW, @CV, weights);
  cv::Mat whole(@IN_H, @IN_W, @CV, tensors[1]), out(@H, @W, @CV, tensors[0]);
  // The window starts at (@TOP, @LEFT) from the output. An anchor must lie inside it; the remainder moves the image.
  const int top = @TOP > 0 ? @TOP : 0, left = @LEFT > 0 ? @LEFT : 0;
  const cv::Mat image = whole(cv::Rect(left, top, @W, @H));
  cv::filter2D(image, out, @CV, window, cv::Point(left - (@LEFT), top - (@TOP)), 0, cv::BORDER_CONSTANT);
}
