"""A plain spider that follows every link it meets."""
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class Crawl(CrawlSpider):
    name = "crawl"
    custom_settings = {"ROBOTSTXT_OBEY": False}
    rules = [Rule(LinkExtractor(), callback="parse_page", follow=True)]

    def __init__(self, start, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.start_urls = [start]

    def parse_start_url(self, response):
        return self.parse_page(response)

    def parse_page(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
